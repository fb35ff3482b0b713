"""Padding changes nothing; later tokens get no gradient; no row loses all its keys."""

import pytest
import torch
from support.contract import fresh, goes, methods, put, some_cases
from support.models import WORDS, run
from torch import Tensor, nn
from torch.nn import functional as F

PADDED = (
    "bert", "bert-eager", "roberta", "torch-encoder", "torch-encoder-seq-first", "t5", "marian",
    "torch-transformer", "llama", "llama-eager",
)  # fmt: skip
CAUSAL = ("llama", "llama-eager", "gpt2", "marian", "t5", "t5-eager", "torch-transformer",
          "torch-transformer-seq-first")  # fmt: skip


def in_turn(models: tuple[str, ...], each: int) -> list[tuple[str, str]]:
    """Every method on some of the models, every model under some of the methods."""
    return [
        (models[(index + step) % len(models)], method)
        for index, method in enumerate(methods())
        for step in range(each)
    ]


def watch_embeddings(net: nn.Module) -> list[Tensor]:
    """What the embeddings of tokens return, as leaves, in order: source first, then target."""
    seen: list[Tensor] = []

    def keep(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        seen.append(output.detach().requires_grad_())
        return seen[-1]

    for module in net.modules():
        if isinstance(module, nn.Embedding) and module.num_embeddings == WORDS:
            module.register_forward_hook(keep)
    return seen


@pytest.mark.parametrize(("model", "method"), in_turn(PADDED, 4))
def test_padding_gets_no_gradient(model: str, method: str) -> None:
    net, x = fresh(model)
    if not goes(model, method):
        return
    put(net, model, method)
    seen = watch_embeddings(net)
    torch.manual_seed(0)
    logits = run(net, x)
    padded = x["attention_mask"] == 0
    if model.startswith("llama"):  # rows of padding are nobody's; those of tokens count
        logits = logits[~padded]
    (gradient,) = torch.autograd.grad(logits.square().sum(), seen[0])
    assert padded.any()
    assert gradient[padded].abs().max() == 0
    assert gradient[~padded].abs().max() > 0


def hashed(shape: torch.Size, device: object = None) -> Tensor:
    """Uniform numbers that depend on the index alone: more padding leaves them as they are."""
    total = torch.zeros(())
    for axis, length in enumerate(shape):
        index = torch.arange(length, dtype=torch.float64) * (12.9898 + 65.233 * axis)
        total = total.unsqueeze(-1) + index
    return (torch.sin(total + 1) * 43758.5453).frac().abs().float()


@pytest.fixture
def draws_by_index(monkeypatch: pytest.MonkeyPatch) -> None:
    def rand(*size: object, device: object = None, **_: object) -> Tensor:
        shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
        return hashed(torch.Size(shape))  # type: ignore[arg-type]

    def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return x
        return x * (hashed(x.shape) >= p) / (1 - p)

    monkeypatch.setattr(torch, "rand", rand)
    monkeypatch.setattr(F, "dropout", dropout)


@pytest.mark.usefixtures("draws_by_index")
@pytest.mark.parametrize(("model", "method"), in_turn(PADDED, 4))
def test_more_padding_changes_nothing(model: str, method: str) -> None:
    if "attention-dropout" in method:
        method = method.replace(
            "attention-dropout", "drophead"
        )  # torch draws inside its fused form
    net, x = fresh(model)
    if not goes(model, method):
        return
    put(net, model, method)
    logits = run(net, x)
    more = dict(x)
    more["input_ids"] = F.pad(x["input_ids"], (0, 3), value=5)
    more["attention_mask"] = F.pad(x["attention_mask"], (0, 3))
    padded = run(net, more)
    if model.startswith("llama"):
        real = x["attention_mask"].bool()
        padded, logits = padded[:, : logits.shape[1]][real], logits[real]
    torch.testing.assert_close(padded, logits, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("model", "method"), in_turn(CAUSAL, 4))
@pytest.mark.parametrize("padding", [False, True])
def test_later_tokens_get_no_gradient(model: str, method: str, padding: bool) -> None:
    net, x = fresh(model)
    if not goes(model, method):
        return
    put(net, model, method)
    if not padding:
        x = {name: value for name, value in x.items() if name != "attention_mask"}
    seen = watch_embeddings(net)
    torch.manual_seed(0)
    logits = run(net, x)
    for position in range(logits.shape[1] - 1):
        (gradient,) = torch.autograd.grad(
            logits[:2, position].square().sum(), seen[-1], retain_graph=True
        )
        assert gradient[:2, position + 1 :].abs().max() == 0, position
        assert gradient[:2, position].abs().max() > 0


@some_cases()
@pytest.mark.parametrize("value", [0.5, 1.0])
def test_no_row_loses_all_its_keys(model: str, method: str, value: float) -> None:
    """Weights as they were applied; only where a whole head is dropped may a row be empty."""
    model = "bert-eager"
    if not goes(model, method):
        return
    net, x = fresh(model)
    put(net, model, method, value)
    torch.manual_seed(2)
    padded = (x["attention_mask"] == 0)[:, None, None, :]
    for weights in net(**x, output_attentions=True).attentions:
        assert torch.isfinite(weights).all()
        assert (weights.masked_select(padded) == 0).all()
        rows = weights.sum(-1)
        gone = (rows == 0).flatten(2).all(-1)  # (B, H)
        if "attention-dropout" not in method:  # which drops weights, not keys
            assert ((rows > 0).flatten(2).all(-1) | gone).all()
            if "drophead" not in method:
                assert not gone.any()
