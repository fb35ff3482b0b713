"""Gradient variance against the oracle and a plain loop in float64 with the same draws (P13)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support import judged
from torch import nn
from torch.overrides import TorchFunctionMode

from attndrop_repro.adapters import apply
from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.evaluation import gradient_shares
from attndrop_repro.evaluation.gradient_variance import gradient_variance, layer_of
from attndrop_repro.evaluation.probabilities import softmax
from attndrop_repro.methods import Method, Settings, get
from attndrop_repro.methods.registry import names as methods
from attndrop_repro.models import PixelModel
from attndrop_repro.randomness import numpy_stream

ORACLE = json.loads((Path(__file__).parents[1] / "oracles.json").read_text())["gradient_variance"]
SPLIT = judged.some(12, "train")
X, Y = SPLIT.pixels(slice(None), dtype=torch.float64), SPLIT.labels
METHODS = [
    ("dropout", {"p": 0.3}),
    ("dropconnect", {"p": 0.3}),
    ("rdrop", {}),
    ("dropkey", {"p": 0.3}),
    ("attention-dropout", {"p": 0.3}),
    ("attentiondrop-hard", {"p": 0.5}),
    ("attentiondrop-blur", {"sigma_max": 2.0}),
    ("attentiondrop-blur+consistency", {"sigma_max": 2.0}),
    ("stochastic-depth", {"p": 0.3}),
    ("explicit-dropout", {}),
]


def double():
    return judged.trained().double()


class Replay(TorchFunctionMode):
    """Answers `rand` and dropout with given numbers, call by call; not the product's code."""

    def __init__(self, give):
        super().__init__()
        self.give, self.calls = give, 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.rand:
            size = args[0] if len(args) == 1 and not isinstance(args[0], int) else args
            return self._next(tuple(size), kwargs.get("dtype"))
        if func is F.dropout:
            x, p = args[0], args[1] if len(args) > 1 else kwargs["p"]
            return x * (self._next(tuple(x.shape)) >= p) / (1 - p) if p else x
        if func is F.scaled_dot_product_attention and len(args) > 4 and args[4] > 0:
            q, k, v, _, p = args[:5]
            weights = (q @ k.mT * kwargs["scale"]).softmax(-1)
            return weights * (self._next(tuple(weights.shape)) >= p) / (1 - p) @ v
        return func(*args, **kwargs)

    def _next(self, shape, dtype=None):
        self.calls += 1
        kind = np.float64 if dtype == torch.float64 else np.float32
        return torch.from_numpy(np.asarray(self.give(self.calls - 1, shape, kind)))


def loop(model, method, settings, draws, seed=0):
    """All gradients one by one: (n, P) of the plain loss, (draws, n, P) of the regularised one."""
    model.train()
    weights = list(model.parameters())

    def flat(loss):
        gradients = torch.autograd.grad(loss, weights)
        return torch.cat([g.flatten() for g in gradients]).numpy()

    pairs = [(X[i : i + 1], Y[i : i + 1]) for i in range(len(X))]
    base = np.stack([flat(F.cross_entropy(model(x), y)) for x, y in pairs])
    handle = apply(model, method, settings)
    drawn = []
    for draw in range(draws):
        rows = []
        for i, (x, y) in enumerate(pairs):

            def give(call, shape, kind, draw=draw, i=i):
                stream = numpy_stream(seed, "gradient-variance", draw, call)
                return stream.random((len(X), *shape), kind)[i]

            with Replay(give):
                rows.append(flat(handle.loss(x, y, F.cross_entropy)))
        drawn.append(rows)
    handle.remove()
    return base, np.array(drawn)


def trace(a, b):
    """Trace of the population covariance over the first axes."""
    a, b = a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1])
    return ((a - a.mean(0)) * (b - b.mean(0))).sum(1).mean()


@pytest.mark.parametrize(("method", "settings"), METHODS, ids=[name for name, _ in METHODS])
def test_equals_a_plain_loop(method, settings):
    base, drawn = loop(double(), method, settings, draws=3)
    model = double()
    found = gradient_variance(
        apply(model, method, settings), X, Y, F.cross_entropy, draws=3, chunk=5
    )
    assert found.policy == "vmap"
    total, delta = found.total, drawn - base
    wide = np.broadcast_to(base, drawn.shape)
    near = lambda value: pytest.approx(value, rel=1e-8, abs=1e-12)  # noqa: E731
    assert total.regularised == near(trace(drawn, drawn))
    assert total.base == near(trace(base, base))
    assert total.delta == near(trace(delta, delta))
    assert total.covariance == near(trace(wide, delta))
    assert total.identity_error < 1e-10
    within = drawn.var(0, ddof=1).sum(-1).mean()
    assert total.mask == near(within)
    assert total.data == near(trace(drawn, drawn) - within)
    assert total.mean_square == near((drawn.mean((0, 1)) ** 2).sum())
    assert total.mean_delta_square == near((delta.mean((0, 1)) ** 2).sum())
    if method == "explicit-dropout":
        assert total.mask == 0, "a penalty draws nothing"
    else:
        assert total.mask > 0
        assert total.regularised != total.base


@pytest.mark.parametrize("method", ["dropout", "attentiondrop-blur", "dropconnect", "rdrop"])
def test_chunks_change_nothing(method):
    handle, args = apply(judged.trained(), method), (X[:5].float(), Y[:5], F.cross_entropy)
    found = [gradient_variance(handle, *args, chunk=c).total for c in (1, 3, 5)]
    for other in found[1:]:
        assert other.regularised == pytest.approx(found[0].regularised, rel=1e-5)
        assert other.mask == pytest.approx(found[0].mask, rel=1e-4)
    assert gradient_variance(handle, *args, chunk=5).total == found[2]
    other_seed = gradient_variance(handle, *args, seed=1).total
    assert other_seed.regularised != pytest.approx(found[0].regularised, rel=1e-3)
    assert other_seed.base == pytest.approx(found[0].base, rel=1e-5)


def test_gradients_that_do_not_fit_are_computed_twice():
    handle, args = apply(judged.trained(), "dropout"), (X[:4].float(), Y[:4], F.cross_entropy)
    much, little = (gradient_variance(handle, *args, memory=m).total for m in (1 << 29, 1))
    assert little.regularised == pytest.approx(much.regularised, rel=1e-5)
    assert little.mask == pytest.approx(much.mask, rel=1e-5)


def test_the_oracle():
    """The terms of the lemma from given gradients."""
    base, delta = (torch.tensor(ORACLE[k], dtype=torch.float64) for k in ("g_base", "delta"))
    terms = gradient_shares.shares(
        base, [base + delta], base.mean(0), (base + delta).mean(0)
    ).mean(1)  # fmt: skip
    expected = [ORACLE[k] for k in ("var_ad", "var_base", "var_delta", "cov_base_delta")]
    assert terms[:4].tolist() == pytest.approx(expected, abs=1e-12)
    assert expected[0] == pytest.approx(expected[1] + 2 * expected[3] + expected[2])


@pytest.mark.parametrize("at_once", [1, 40, 1 << 20])
def test_how_many_units_are_multiplied_at_once_changes_nothing(monkeypatch, at_once):
    torch.manual_seed(0)
    g, *drawn = torch.randn(4, 7, 5, dtype=torch.float64)
    means = (g.mean(0), torch.stack(drawn).mean((0, 1)))
    monkeypatch.setattr(gradient_shares, "_AT_ONCE", at_once)
    found = gradient_shares.shares(g, drawn, *means)
    r = torch.stack(drawn)
    change = r - g - (means[1] - means[0])
    expected = [
        (r - means[1]).square().sum(2).mean(0),
        (g - means[0]).square().sum(1),
        change.square().sum(2).mean(0),
        (change * (g - means[0])).sum(2).mean(0),
        r.var(0).sum(1),
    ]
    assert (found - torch.stack(expected)).abs().max() < 1e-12


@pytest.mark.parametrize(("method", "zero"), [("dropout", {"p": 0.0}), ("none", {})])
def test_strength_zero_is_the_plain_model(method, zero):
    found = gradient_variance(apply(double(), method, zero), X, Y, F.cross_entropy).total
    assert found.regularised == pytest.approx(found.base, rel=1e-12)
    assert found.base > 0
    assert found.delta == found.covariance == found.mask == 0
    assert not found.lowers


def test_strength_tells():
    values = [
        gradient_variance(apply(double(), "dropout", p=p), X, Y, F.cross_entropy).total.delta
        for p in (0.01, 0.1, 0.4)
    ]
    assert 0 < values[0] < values[1] < values[2]


def test_one_draw_cannot_tell_the_parts():
    total = gradient_variance(apply(double(), "dropout"), X, Y, F.cross_entropy, draws=1).total
    assert total.mask is None
    assert total.data is None
    assert "mask" not in total.intervals


def test_mask_part_by_many_draws():
    """The law of total variance: the data part is the variance of the mean over draws."""
    options = {"criterion": F.cross_entropy}
    few = gradient_variance(apply(double(), "dropout"), X, Y, draws=2, **options).total
    many = gradient_variance(apply(double(), "dropout"), X, Y, draws=6, **options).total
    assert few.data + few.mask == pytest.approx(few.regularised)
    _, drawn = loop(double(), "dropout", {}, draws=6)
    means = drawn.mean(0)
    assert many.data == pytest.approx(trace(means, means) - many.mask / 6, rel=1e-6)


def test_intervals_hold_the_estimate_and_shrink():
    split = judged.some(300, "train")
    x, y = split.pixels(slice(None)), split.labels
    handle = apply(judged.trained(), "dropout")
    widths = []
    for n in (40, 300):
        total = gradient_variance(handle, x[:n], y[:n], F.cross_entropy).total
        low, high = total.intervals["regularised"]
        assert low < total.regularised < high
        widths.append((high - low) / total.regularised)
    assert widths[1] < widths[0]


def test_layers_add_up():
    handle = apply(double(), "dropout")
    found = gradient_variance(handle, X, Y, F.cross_entropy, layers=True)
    assert sum(s.regularised for s in found.layers.values()) == pytest.approx(
        found.total.regularised
    )
    assert {"network.blocks.0", "network.blocks.1", "network.head"} <= set(found.layers)
    assert gradient_variance(handle, X, Y, F.cross_entropy).layers == {}
    assert layer_of("network.cls_token") == "network.cls_token"


def test_batches():
    """Gradients of batches: means of single ones when each draws for itself."""
    base, drawn = loop(double(), "dropkey", {"p": 0.3}, draws=2)
    handle = apply(double(), "dropkey", p=0.3)
    found = gradient_variance(
        handle, X, Y, F.cross_entropy, per="batch", batch_size=4, perturbation="sample"
    )
    grouped = drawn.reshape(2, 3, 4, -1).mean(2)
    assert found.units == 3
    assert found.total.regularised == pytest.approx(trace(grouped, grouped))
    mean = base.reshape(3, 4, -1).mean(1)
    assert found.total.base == pytest.approx(trace(mean, mean))
    values = []
    for chunk in (1, 2, 3):
        as_trained = gradient_variance(
            handle, X, Y, F.cross_entropy, per="batch", batch_size=5, perturbation="batch",
            chunk=chunk,
        )  # fmt: skip
        assert as_trained.units == 2, "a rest of two is left out"
        values.append(as_trained.total.regularised)
    assert values == pytest.approx([values[0]] * 3)
    assert values[0] > 0


def test_examples_may_share_their_draws():
    """One perturbation a batch: with equal examples, the gradients of a batch are equal."""
    x, y = X[:1].expand(12, -1, -1, -1), Y[:1].expand(12)
    handle = apply(double(), "dropkey", p=0.5)
    own = gradient_variance(handle, x, y, F.cross_entropy, draws=1).total
    shared = [
        gradient_variance(
            handle, x, y, F.cross_entropy, draws=1, perturbation="batch", batch_size=6, chunk=c
        ).total
        for c in (4, 5, 12)
    ]
    whole = gradient_variance(
        handle, x, y, F.cross_entropy, draws=1, perturbation="batch", batch_size=12
    ).total
    assert own.base == pytest.approx(0, abs=1e-20)
    assert own.regularised > 0
    assert whole.regularised == pytest.approx(0, abs=1e-20)
    for other in shared:
        assert other.regularised > 0
        assert other.regularised == pytest.approx(shared[0].regularised)


def test_batch_norm_is_refused():
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))
    model = PixelModel(network, mean=(0.0,), std=(1.0,), classes=SPLIT.classes, image_size=8)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(AttndropError, match=r"network\.2.*share statistics"):
        gradient_variance(apply(model, "none"), X.float(), Y, F.cross_entropy)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_behind(fails):
    model = judged.trained()
    model.train()
    model.network.blocks[0].eval()
    modes = [m.training for m in model.modules()]
    handle = apply(model, "attentiondrop-blur+consistency")
    state, weights = torch.get_rng_state(), {k: v.clone() for k, v in model.state_dict().items()}
    seen = []

    def criterion(outputs, y):
        seen.append(model.training)
        if fails and len(seen) > 1:
            raise KeyError("planted")
        return F.cross_entropy(outputs, y)

    if fails:
        with pytest.raises(KeyError):
            gradient_variance(handle, X.float(), Y, criterion)
    else:
        gradient_variance(handle, X.float(), Y, criterion)
    assert all(seen)
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(weights[k], v) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert not handle.runtime.off
    model.train()
    handle.loss(X.float(), Y, F.cross_entropy).backward()
    handle.remove()


class Stubborn(Method[Settings]):
    """Looks at a number: vmap cannot."""

    name = "stubborn"
    reference = "test"

    def hidden(self, site, x):
        return x * (1 + (torch.rand(()) > 0.5).item())

    needs = frozenset({"mlp-hidden"})


class Secret(Stubborn):
    """Draws by an operation that cannot be given an example's own numbers."""

    name = "secret"

    def hidden(self, site, x):
        return x + torch.randperm(3)[0]


def test_a_method_that_vmap_cannot_do_is_looped():
    handle = apply(double(), Stubborn(Settings()))
    found = gradient_variance(handle, X, Y, F.cross_entropy, chunk=5)
    assert found.policy.startswith("loop: ")
    assert "item" in found.policy
    assert found.total.mask > 0
    again = gradient_variance(handle, X, Y, F.cross_entropy, chunk=12)
    assert again.total.regularised == pytest.approx(found.total.regularised)


def test_draws_that_belong_to_nobody_are_refused():
    with pytest.raises(AttndropError, match="example's own"):
        gradient_variance(apply(double(), Secret(Settings())), X, Y, F.cross_entropy)


def test_too_few():
    handle = apply(double(), "dropout")
    for options in ({"draws": 0}, {"per": "batch", "batch_size": 7}):
        with pytest.raises(UsageError, match="at least two"):
            gradient_variance(handle, X, Y, F.cross_entropy, **options)
    with pytest.raises(UsageError):
        gradient_variance(handle, X[:1], Y[:1], F.cross_entropy)


def test_of_a_logistic_regression_by_hand():
    """Gradient of the weights is (p - onehot) x: everything is known."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False, dtype=torch.float64))
    model = PixelModel(
        network, mean=(0.0,), std=(1.0,), classes=SPLIT.classes, image_size=8
    ).double()
    with torch.no_grad():
        p = softmax(model(X).numpy())
    gradients = (p - np.eye(10)[Y])[:, :, None] * X.flatten(1).numpy()[:, None, :]
    flat = gradients.reshape(len(X), -1)
    found = gradient_variance(apply(model, "none"), X, Y, F.cross_entropy).total
    assert found.base == pytest.approx(trace(flat, flat))


@pytest.mark.parametrize("method", [name for name in methods() if get(name).passes == 1])
def test_every_registered_method(method):
    """Each is measured with its regulariser on, the same for any chunk size; or it says why not."""
    x, y = X[:4].float(), Y[:4]
    found = [
        gradient_variance(apply(judged.trained(), method), x, y, F.cross_entropy, chunk=c)
        for c in (3, 4)
    ]
    assert found[0].total.regularised == pytest.approx(found[1].total.regularised, rel=1e-5)
    assert found[0].policy == "vmap"
    if method != "none":
        assert found[0].total.delta > 0
    if get(method).stochastic:
        assert found[0].total.mask > 0
