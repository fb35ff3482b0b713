"""How often something is dropped inside a model, against what was asked for."""

import pytest
import torch
from support.contract import fresh
from torch import Tensor

import attndrop_repro as attndrop

RUNS = 60
TOKENS = 6

# method, settings -> share of attention weights that are 0 in a row of six keys
WEIGHTS = [
    ("dropkey", {"p": 0.3}, 0.3),
    ("dropattention", {"p": 0.3}, 0.3),
    ("dropattention", {"p": 0.3, "unit": "column"}, 0.3),
    ("attention-dropout", {"p": 0.3}, 0.3),
    ("drophead", {"p": 0.3}, 0.3),
    ("drophead", {"p": 0.3, "per": "batch"}, 0.3),
    ("attentiondrop-hard", {"p": 0.4, "k": 3, "mode": "drop"}, 0.4 * 3 / TOKENS),
]
# method, settings, hook -> share of numbers that are 0 in what the hook returns
NUMBERS = [
    ("dropout", {"p": 0.3}, "hidden", 0.3),
    ("rdrop", {"p": 0.3}, "hidden", 0.3),
    ("dropdim", {"p": 0.25}, "hidden", 0.25),
    ("dropdim", {"p": 0.25, "form": "span"}, "hidden", 0.25),
    ("stochastic-depth", {"p": 0.3, "growth": "constant"}, "hidden", 0.3),
    ("dropconnect", {"p": 0.3}, "weight", 0.3),
]


def _check(shares: list[float], expected: float, slack: float = 0.0) -> None:
    """Runs are independent, whatever is shared inside one: their mean is normal enough."""
    values = torch.tensor(shares, dtype=torch.float64)
    error = float(values.std() / len(values) ** 0.5)
    assert abs(float(values.mean()) - expected) < 4 * error + slack + 1e-9


@pytest.mark.parametrize(("method", "settings", "expected"), WEIGHTS, ids=str)
def test_attention_weights(method: str, settings: dict[str, object], expected: float) -> None:
    net, x = fresh("bert-eager")
    x = {"input_ids": x["input_ids"]}
    attndrop.apply(net, method, settings)
    torch.manual_seed(0)
    shares = []
    for _ in range(RUNS):
        weights = net(**x, output_attentions=True).attentions
        shares.append(float(torch.stack(weights).eq(0).double().mean()))
    # a row that would lose all its keys keeps one: at most p^6 of all rows
    _check(shares, expected, slack=0.3**TOKENS)


@pytest.mark.parametrize(("method", "settings", "hook", "expected"), NUMBERS, ids=str)
def test_weights_and_activations(
    method: str, settings: dict[str, object], hook: str, expected: float
) -> None:
    net, x = fresh("vit")
    handle = attndrop.apply(net, method, settings)
    genuine = getattr(handle.method, hook)
    seen: list[Tensor] = []

    def keep(site, value):  # type: ignore[no-untyped-def]
        changed = genuine(site, value)
        if changed is not value:
            seen.append(changed.eq(0) & value.ne(0))
        return changed

    setattr(handle.method, hook, keep)
    torch.manual_seed(0)
    shares = []
    for _ in range(RUNS):
        seen.clear()
        net(x)
        shares.append(float(torch.cat([mask.flatten() for mask in seen]).double().mean()))
    _check(shares, expected)
