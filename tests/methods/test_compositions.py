"""Compositions of weights, activations, objectives and penalties with attention methods."""

import pytest
import torch
import torch.nn.functional as F
from support.models import build as build_model
from support.models import run
from torch import Tensor

import attndrop_repro as attndrop
from attndrop_repro.config.errors import UsageError
from attndrop_repro.methods import build, canonical, resolve

Y = torch.tensor([0, 1, 2])
COMPOSED = (
    "dropkey+dropout",
    "attentiondrop-blur+consistency",
    "attentiondrop-hard+dropconnect+consistency",
    "dropout+explicit-dropout",
    "arora+explicit-dropout",
    "attendout+stochastic-depth",
    "dropout+explicit-dropout+rdrop",
    "rdrop",
)


@pytest.mark.parametrize(
    ("written", "spelt"),
    [
        ("dropout+dropkey", "dropkey+dropout"),
        ("consistency+attentiondrop-blur", "attentiondrop-blur+consistency"),
        ("rdrop+explicit-dropout+dropout", "dropout+explicit-dropout+rdrop"),
        ("explicit-dropout + dropout + none", "dropout+explicit-dropout"),
        ("rdrop", "rdrop"),
    ],
)
def test_canonical_order(written: str, spelt: str) -> None:
    assert canonical(written) == spelt


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rdrop+consistency", "consistency and rdrop do not compose"),
        ("consistency", "add a stochastic method"),
        ("explicit-dropout+consistency", "add a stochastic method"),
        ("attentiondrop-hard+drophed", "did you mean 'drophead'"),
    ],
)
def test_collisions_give_one_clear_line(name: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        build(name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nested_settings() -> None:
    method = build(
        "dropout+explicit-dropout+rdrop",
        {"dropout": {"p": 0.2}, "rdrop": {"p": 0.0}, "explicit_dropout": {"p": 0.3}, "alpha": 2.0},
    )
    settings = {part.name: part.settings for part in method.parts}  # type: ignore[attr-defined]
    assert [settings[n].p for n in ("dropout", "explicit-dropout", "rdrop")] == [0.2, 0.3, 0.0]
    assert settings["rdrop"].alpha == 2.0
    with pytest.raises(UsageError, match="write dropout="):
        build("dropout+rdrop", {"p": 0.2})
    with pytest.raises(UsageError, match="did you mean 'alpha'"):
        build("dropout+rdrop", {"alfa": 0.2})


@pytest.mark.parametrize("name", COMPOSED)
def test_loss_is_the_sum_of_its_parts_and_trains(name: str) -> None:
    model, x = build_model("vit")
    handle = attndrop.apply(model, name)
    torch.manual_seed(0)
    loss = handle.loss(x, Y, F.cross_entropy)
    loss.backward()
    assert sum(part.item() for part in handle.parts.values()) == pytest.approx(loss.item())
    penalised = {"explicit-dropout", "arora"} & set(name.split("+"))
    assert ("penalty" in handle.parts) == bool(penalised)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    plain, _ = build_model("vit")
    assert torch.equal(run(model.eval(), x), run(plain.eval(), x))


@pytest.mark.parametrize("name", [*COMPOSED[2:3], *COMPOSED[5:7]])
def test_compiled_equals_eager(name: str) -> None:
    torch.compiler.reset()  # one process compiles the same code objects for many methods
    model, x = build_model("vit")
    handle = attndrop.apply(model, name)
    losses = []
    for forward in (None, torch.compile(model, backend="aot_eager", fullgraph=True)):
        torch.manual_seed(1)
        losses.append(handle.loss(x, Y, F.cross_entropy, forward=forward))
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["dropconnect", "dropout", "explicit-dropout", "rdrop"])
def test_per_sample_gradients(name: str) -> None:
    model, x = build_model("vit")
    handle = attndrop.apply(model, name)
    parameters = dict(model.named_parameters())

    def loss(p: dict[str, Tensor], one: Tensor, y: Tensor) -> Tensor:
        def forward(images: Tensor) -> Tensor:
            return torch.func.functional_call(model, p, (images,))

        return handle.loss(one[None], y[None], F.cross_entropy, forward=forward)

    gradients = torch.vmap(torch.func.grad(loss), (None, 0, 0), randomness="different")(
        parameters, x, Y
    )
    assert all(g.shape[0] == 3 and g.isfinite().all() for g in gradients.values())
    if name == "explicit-dropout":  # nothing is drawn: the mean is the batch's gradient
        handle.loss(x, Y, F.cross_entropy).backward()
        for key, value in model.named_parameters():
            torch.testing.assert_close(gradients[key].mean(0), value.grad, rtol=1e-4, atol=1e-5)


def test_a_rule_about_several_settings_is_one_short_line():
    with pytest.raises(UsageError) as caught:
        build("attentiondrop-blur", {"axes": "rows_and_columns", "kinds": ["decoder-self"]})
    assert str(caught.value).startswith("attentiondrop-blur: axes = rows_and_columns needs")
    assert "Value error" not in str(caught.value)


def test_a_wrong_setting_gets_the_settings_alone() -> None:
    with pytest.raises(UsageError) as error:
        resolve("dropkey", {"q": 2})
    listed = str(error.value).partition("there are: ")[2].split(", ")
    assert "p" in listed
    assert "dropkey" not in listed
    with pytest.raises(UsageError, match="did you mean 'dropkey'"):
        resolve("dropkey", {"dropky": {"p": 0.2}})
