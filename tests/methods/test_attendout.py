"""AttendOut in a model: kept apart, taught on held-out examples, saved and restored."""

import copy
import io
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.attention import make_call
from support.models import BY_NAME, run
from support.models import build as build_model
from torch import Tensor

import attndrop_repro as attndrop
from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.methods import Task, build, get
from attndrop_repro.methods.mask_generator import losses

X = BY_NAME["vit"].batch(6)
Y = torch.arange(6) % 5


def applied(name: str = "attendout", **settings: Any) -> tuple[torch.nn.Module, attndrop.Handle]:
    torch.manual_seed(0)
    model, _ = build_model("vit")
    return model, attndrop.apply(model, name, **settings)


def teach(handle: attndrop.Handle, times: int = 1, seed: int = 0) -> list[dict[str, float]]:
    torch.manual_seed(seed)
    return [handle.update(X, Y, F.cross_entropy) for _ in range(times)]


def test_it_says_that_it_is_a_reconstruction() -> None:
    cls = get("attendout")
    assert "Reconstruction" in cls.reference
    assert "reconstruction" in cls.notes


def test_the_model_knows_nothing_of_it() -> None:
    plain, _ = build_model("vit")
    model, handle = applied()
    assert list(model.state_dict()) == list(plain.state_dict())
    assert len(list(model.parameters())) == len(list(plain.parameters()))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    teach(handle)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert all(p.grad is None for p in model.parameters())
    handle.loss(X, Y, F.cross_entropy).backward()
    generators = handle.method.learner().modules()  # type: ignore[union-attr]
    assert len(list(generators.parameters())) == 4 * 2
    teach(handle)  # what the model's backward left does not matter
    handle.remove()
    assert torch.equal(run(model.eval(), X), run(plain.eval(), X))


def test_it_begins_at_its_rate_without_a_draw_from_the_regulariser() -> None:
    states = []
    for name in ("none", "attendout"):
        torch.manual_seed(5)
        model = BY_NAME["vit"].make()
        attndrop.apply(model, name)
        states.append((torch.get_rng_state(), model.state_dict()))
    assert torch.equal(states[0][0], states[1][0])
    for key, value in states[0][1].items():
        assert torch.equal(value, states[1][1][key])


def test_empirical_rate_and_rows() -> None:
    method = build("attendout", {"p": 0.3})
    call = make_call(40, 2, 6, width=4, dtype=torch.float32, x=torch.randn(40, 6, 8))
    torch.manual_seed(0)
    keep = method.rewrite(call).allowed
    assert keep is not None
    assert abs((~keep).float().mean().item() - 0.3) < 0.03
    assert keep.any(-1).all()
    nearly_all = build("attendout", {"p": 0.999})
    keep = nearly_all.rewrite(call).allowed
    assert keep is not None
    assert (keep.sum(-1) == 1).float().mean() > 0.95
    assert keep.any(-1).all()


def test_padding_is_never_what_remains() -> None:
    real = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0]]).bool()[:, None, None]
    call = make_call(2, 2, 4, width=4, dtype=torch.float32, x=torch.randn(2, 4, 8), allowed=real)
    method = build("attendout", {"p": 0.9})
    for seed in range(20):
        torch.manual_seed(seed)
        allowed = method.rewrite(call).allowed
        assert allowed is not None
        assert not (allowed & ~real).any()
        assert allowed.any(-1).all()
        assert method.rewrite(call).run().isfinite().all()


def test_update_says_what_it_did_and_moves_only_when_due() -> None:
    _, handle = applied(every=3)
    logs = teach(handle, 6)
    assert [bool(log) for log in logs] == [False, False, True, False, False, True]
    assert set(logs[2]) == {"reward", "rate", "entropy"}
    assert logs[2]["rate"] == pytest.approx(0.1, abs=1e-5)
    assert 0 < logs[2]["entropy"] < 0.7
    assert handle.held_out


def test_without_a_learner_update_does_nothing() -> None:
    for name in ("none", "dropkey", "explicit-dropout"):
        _, handle = applied(name)
        assert handle.update(X, Y, F.cross_entropy) == {}
        assert handle.state_dict() == {}
        assert not handle.held_out
        handle.load_state_dict({})
        with pytest.raises(AttndropError, match="learns nothing"):
            handle.load_state_dict({"updates": 3})
        handle.remove()
    _, handle = applied("attendout", p=0)
    assert handle.update(X, Y, F.cross_entropy) == {}


def test_state_goes_on_bit_by_bit() -> None:
    _, handle = applied()
    teach(handle, 3)
    state = handle.state_dict()
    assert all(isinstance(value, Tensor | int | float | str) for value in state.values())
    buffer = io.BytesIO()
    torch.save(state, buffer)
    expected = teach(handle, 2, seed=9)
    for prepared in (True, False):
        _, other = applied()
        if not prepared:
            other.method.generators.layers.clear()  # type: ignore[attr-defined]
            other.method.generators.optimizer.param_groups.clear()  # type: ignore[attr-defined]
        buffer.seek(0)
        other.load_state_dict(torch.load(buffer, weights_only=True))
        assert teach(other, 2, seed=9) == expected
        for key, value in handle.state_dict().items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(other.state_dict()[key]))
    _, fresh = applied()
    with pytest.raises(AttndropError, match="no state of attendout") as caught:
        fresh.load_state_dict({"updates": 1})
    assert "\n" not in str(caught.value)


def test_copies_have_generators_of_their_own() -> None:
    model, handle = applied()
    teach(handle)
    twin = copy.deepcopy(model)
    states = [handle.state_dict()]
    torch.manual_seed(1)
    before = run(twin, X)
    teach(handle, 2)
    torch.manual_seed(1)
    assert torch.equal(run(twin, X), before)
    assert not torch.equal(handle.state_dict()["0.w_k"], states[0]["0.w_k"])


def test_the_reward_is_of_its_own_dropping_alone() -> None:
    """Other parts of a composition, and the model's own dropout, are off while it is taught."""
    model, handle = applied("attendout+dropout", dropout={"p": 0.9}, attendout={"p": 0.0001})
    model.pos_drop.p = 0.9  # type: ignore[union-attr, assignment]
    log = teach(handle)[0]
    assert log["attendout.reward"] == pytest.approx(0, abs=1e-6)
    torch.manual_seed(0)
    assert not torch.equal(run(model, X), run(model, X))  # and on again afterwards


def test_an_error_in_an_update_leaves_everything_as_it_was() -> None:
    model, handle = applied()

    def broken(z: Tensor, y: Tensor) -> Tensor:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        handle.update(X, Y, broken)
    assert all(module.training for module in model.modules())
    assert handle.runtime.method is handle.method
    teach(handle)


def test_losses_are_per_example_where_they_can_be() -> None:
    z, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    expected = F.cross_entropy(z, y, reduction="none")
    torch.testing.assert_close(losses(z, y, Task(F.cross_entropy)), expected)
    batch = losses(z, {"y": y}, Task(lambda a, b: F.cross_entropy(a, b["y"])))
    torch.testing.assert_close(batch, expected.mean().expand(4))


def test_what_it_cannot_see_or_do_is_refused_in_one_line() -> None:
    with pytest.raises(AttndropError, match="needs the tokens that enter") as caught:
        build("attendout").rewrite(make_call(dtype=torch.float32))
    assert "\n" not in str(caught.value)
    for p in ([0.1, 0.1], {"schedule": "linear", "value": 0.1}, {"learnable": True, "init": 0.1}):
        with pytest.raises(UsageError, match=r"attendout\.p"):
            build("attendout", {"p": p})
    with pytest.raises(UsageError, match=r"attendout\.p"):
        build("attendout", {"p": 1})


def test_compiled_without_a_graph_break() -> None:
    model, handle = applied(p=0.3)
    teach(handle, 2)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.manual_seed(2)
    expected = run(model, X)
    torch.manual_seed(2)
    torch.testing.assert_close(compiled(X), expected, rtol=1e-5, atol=1e-5)


def test_per_sample_gradients() -> None:
    model, _ = applied(p=0.3)
    parameters = dict(model.named_parameters())

    def loss(p: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        z = torch.func.functional_call(model, p, (x[None],))
        return F.cross_entropy(z, y[None])

    gradients = torch.vmap(torch.func.grad(loss), (None, 0, 0), randomness="different")(
        parameters, X, Y
    )
    assert all(g.shape[0] == 6 and g.isfinite().all() for g in gradients.values())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    model, handle = applied(p=0.3)
    model.to(dtype)
    y = run(model, X.to(dtype))
    assert y.dtype == dtype
    assert y.isfinite().all()
    log = handle.update(X.to(dtype), Y, lambda z, t: F.cross_entropy(z.float(), t))
    assert all(abs(value) < float("inf") for value in log.values())
