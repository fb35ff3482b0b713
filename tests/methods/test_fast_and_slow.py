"""The quick form of each method against its equation as printed: fifty steps of training, exactly.

The slow forms make every logit and weight, and draw what the quick ones draw, in the same order.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from support.largest import Largest
from support.models import images, liven, vit
from torch import Tensor, nn

import attndrop_repro as attndrop
from attndrop_repro.functional import attention_by_rows as by_rows
from attndrop_repro.functional.attention_dropout import attention_dropout
from attndrop_repro.functional.blur import gaussian_kernel
from attndrop_repro.functional.hard_masking import hard_masking
from attndrop_repro.functional.key_dropping import dropkey
from attndrop_repro.methods import AttentionCall, Method, build
from attndrop_repro.methods.attention_dropout import AttentionDropout
from attndrop_repro.methods.attentiondrop_blur import BlurredSmoothing
from attndrop_repro.methods.attentiondrop_hard import HardMasking
from attndrop_repro.methods.dropattention import DropAttention
from attndrop_repro.methods.drophead import DropHead
from attndrop_repro.methods.dropkey import DropKey
from attndrop_repro.methods.registry import get


def logits(call: AttentionCall) -> Tensor:
    return call.q @ call.k.transpose(-2, -1) * call.scale


class SlowBlur(BlurredSmoothing):
    """Every row of the logits convolved, and every column with rows_and_columns."""

    def rewrite(self, call: AttentionCall) -> AttentionCall:
        return call

    def attend(self, call: AttentionCall) -> Tensor:
        kernel = gaussian_kernel(self._sigma(call, self.here(call.site)), self.settings.w)
        x = self._convolved(logits(call), kernel)
        if self.settings.axes == "rows_and_columns":
            x = self._convolved(x.transpose(-2, -1), kernel).transpose(-2, -1)
        return x.softmax(-1) @ call.v

    def _convolved(self, x: Tensor, kernel: Tensor) -> Tensor:
        rows = x.reshape(-1, 1, x.shape[-1])
        return F.conv1d(rows, kernel.view(1, 1, -1), padding=self.settings.w // 2).view(x.shape)


class SlowHard(HardMasking):
    def attend(self, call: AttentionCall) -> Tensor:
        s = self.settings
        keep = self._keep(call, self.here(call.site))
        return hard_masking(logits(call), keep, s.k, mode=s.mode).softmax(-1) @ call.v


class SlowKeys(DropKey):
    def attend(self, call: AttentionCall) -> Tensor:
        return dropkey(logits(call), call.visible()) @ call.v


class SlowElements(DropAttention, SlowKeys):
    pass


class SlowDropout(AttentionDropout):
    def rewrite(self, call: AttentionCall) -> AttentionCall:
        return call

    def attend(self, call: AttentionCall) -> Tensor:
        p = self.here(call.site)
        keep = torch.rand(call.shape) >= p
        return attention_dropout(logits(call).softmax(-1), keep, p) @ call.v


class SlowHeads(DropHead):
    """Heads dropped from what they return, rather than from the values."""

    def rewrite(self, call: AttentionCall) -> AttentionCall:
        return call

    def attend(self, call: AttentionCall) -> Tensor:
        ones = call.replace(v=torch.ones_like(call.v))
        factor = super().rewrite(ones).v[:, :, :1, :1]
        return logits(call).softmax(-1) @ call.v * factor


CASES = [
    (SlowBlur, {"sigma_max": 2.0}),
    (SlowBlur, {"sigma_max": 2.0, "axes": "rows_and_columns", "sigma_per": "layer"}),
    (SlowHard, {"p": 0.3}),
    (SlowHard, {"p": 0.3, "mode": "drop", "k": 12}),
    (SlowKeys, {"p": 0.3}),
    (SlowElements, {"p": 0.3, "w": 3}),
    (SlowElements, {"p": 0.3, "unit": "column"}),
    (SlowDropout, {"p": 0.3}),
    (SlowHeads, {"p": 0.3}),
]


def losses(net: nn.Module, method: Method, steps: int = 50) -> Tensor:
    """Of every step of a training."""
    net = copy.deepcopy(net)
    handle = attndrop.apply(net, method)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    x, y = images(4).double(), torch.arange(4)
    torch.manual_seed(0)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = handle.loss(x, y, F.cross_entropy)
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found)


@pytest.mark.parametrize("kept", [8, 0], ids=["weights kept", "computed again"])
@pytest.mark.parametrize(
    ("slow", "settings"), CASES, ids=[f"{slow.name}-{len(s)}" for slow, s in CASES]
)
def test_fifty_steps(
    slow: type[Method], settings: dict, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_rows, "_KEPT_UP_TO", kept)
    monkeypatch.setattr(by_rows, "_AT_A_TIME", 500)
    monkeypatch.setattr(by_rows, "_AT_A_TIME_BY_THREADS", 500)
    net = liven(vit(patch_size=4, depth=1)).double().train()
    quick = losses(net, build(slow.name, settings))
    checked = slow.Settings.model_validate(settings)
    torch.testing.assert_close(quick, losses(net, slow(checked)), rtol=1e-9, atol=1e-9)
    assert quick[-5:].mean() < quick[0]
    plain = losses(net, get("none")(get("none").Settings()))
    assert (quick - plain).abs().max() > 1e-3


@pytest.mark.parametrize(
    "slow", [SlowBlur, SlowHard, SlowKeys, SlowElements, SlowDropout, SlowHeads]
)
def test_no_attention_method_makes_a_matrix_of_logits(slow: type[Method]) -> None:
    """When plain attention makes none: 401 tokens of 4 numbers a head."""
    net = vit(img_size=20, patch_size=1, embed_dim=8, depth=1).train()
    handle = attndrop.apply(net, slow.name)
    with Largest() as largest, pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_rows, "_AT_A_TIME", 2**13)
        patch.setattr(by_rows, "_AT_A_TIME_BY_THREADS", 2**13)
        handle.loss(images(1, 20), torch.tensor([1]), F.cross_entropy).backward()
    assert largest.elements < 401 * 401 / 8
