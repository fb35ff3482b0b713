"""A method is tested by being registered; who goes into which model; calls are sites x passes."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support import contract
from support.contract import Refused, fresh, methods, put, strengths
from support.models import ALL, BY_NAME

import attndrop_repro as attndrop
from attndrop_repro.config.errors import AttndropError
from attndrop_repro.methods import get, parts_of, registry, resolve

SINGLES = [name for name in methods() if "+" not in name]

TOY = '''
"""A method in one file of its own."""

import torch

from attndrop_repro.methods.registry import register
from attndrop_repro.methods.scope import Scope, Scoped
from attndrop_repro.methods.settings import setting
from attndrop_repro.methods.strength import Probability


class ToySettings(Scope):
    """Settings."""

    p: Probability = setting(0.1, "How far values may shrink.")


@register
class Toy(Scoped[ToySettings]):
    """Shrinks all values by one draw of each pass."""

    name = "toy-shrink"
    reference = "test"
    Settings = ToySettings

    def begin_step(self, step):
        super().begin_step(step)
        if BROKEN and step.pass_index:
            return
        self.draw = torch.rand(1, device=step.device)

    def rewrite(self, call):
        p = self.here(call.site)
        return call if p is None else call.replace(v=call.v * (1 - p * self.draw))
'''


@pytest.fixture
def toy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """One more file in the folder of methods, as far as Python can tell."""
    (tmp_path / "toy_shrink.py").write_text(TOY.replace("BROKEN", str(request.param)))
    package = sys.modules["attndrop_repro.methods"]
    package.__path__.append(str(tmp_path))
    try:
        yield "toy-shrink"
    finally:
        package.__path__.remove(str(tmp_path))
        registry._METHODS.pop("toy-shrink", None)
        sys.modules.pop("attndrop_repro.methods.toy_shrink", None)


def _contract_of(model: str, method: str) -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(
        "contract_plain", Path(__file__).with_name("test_contract_plain.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.test_eval_is_plain_and_training_is_not(model, method)
    module.test_every_strength_at_zero_is_plain_in_training_too(model, method)


@pytest.mark.parametrize("toy", [False], indirect=True)
def test_one_file_is_enough_to_be_tested(toy: str) -> None:
    assert toy in attndrop.methods()
    assert {toy, f"{toy}+consistency"} <= set(methods.__wrapped__())
    for model in ("vit", "bert"):
        for method in (toy, f"{toy}+consistency", f"dropout+{toy}"):
            _contract_of(model, method)


@pytest.mark.parametrize("toy", [True], indirect=True)
def test_the_contract_finds_a_draw_that_two_passes_share(toy: str) -> None:
    assert toy in attndrop.methods()
    with pytest.raises(AssertionError):
        _contract_of("vit", f"{toy}+consistency")


def test_every_method_says_how_strong_it_is() -> None:
    for name in attndrop.methods():
        if name != "none":
            assert strengths(get(name)), name


CANNOT = {
    # GPT-2 has Conv1D in place of linear layers: no weights to exchange, no projections to see
    ("gpt2", "arora"), ("gpt2", "explicit-dropout"), ("gpt2", "dropconnect"),
}  # fmt: skip


def test_every_method_goes_into_every_model_but_these() -> None:
    refused = set()
    for tiny in ALL:
        for method in SINGLES:
            try:
                put(fresh(tiny.name)[0], tiny, method)
            except Refused:
                refused.add((tiny.name, method))
    assert refused == CANNOT


@pytest.mark.parametrize("model", ["llama", "gpt2"])
@pytest.mark.parametrize("method", SINGLES)
def test_a_scope_that_finds_nothing_is_an_error_at_once(model: str, method: str) -> None:
    if "kinds" not in get(method).Settings.model_fields or (model, method) in CANNOT:
        return
    with pytest.raises(AttndropError, match=rf"{method}\.kinds .*decoder-self"):
        attndrop.apply(fresh(model)[0], method)


@contract.some_cases("vit", "vit-unfused", "swin", "bert", "t5")
def test_spy_counts_sites_times_passes(model: str, method: str) -> None:
    """P06: nothing gets around a method, fused or not."""
    net, x = fresh(model)
    handle = put(net, model, method)
    counts = {"rewrite": 0, "begin_step": 0}
    for hook in counts:
        genuine = getattr(handle.method, hook)

        def spy(*args, hook=hook, genuine=genuine):  # type: ignore[no-untyped-def]
            counts[hook] += 1
            return genuine(*args)

        setattr(handle.method, hook, spy)
    for _ in range(2):
        handle.outputs(x)
    assert counts["begin_step"] == 2 * handle.passes
    assert counts["rewrite"] == 2 * handle.passes * BY_NAME[model].attentions
    assert len(parts_of(handle.method)) == len(method.split("+"))


@pytest.mark.parametrize("method", SINGLES)
def test_the_same_seed_gives_the_same_training_pass(method: str) -> None:
    net, x = fresh("vit")
    handle = put(net, "vit", method)
    outputs = []
    for _ in range(2):
        torch.manual_seed(11)
        outputs.append(handle.outputs(x)[0])
    assert torch.equal(*outputs)


@pytest.mark.parametrize("method", SINGLES)
def test_one_kind_need_not_be_a_list(method: str) -> None:
    if "kinds" in get(method).Settings.model_fields:
        (settings,) = resolve(method, {"kinds": "cross"}).values()
        assert settings.kinds == ("cross",)
