"""Explicit dropout and Arora's penalty: against dropping itself, padding, coefficients, models."""

import pytest
import torch
import torch.nn.functional as F
from support.attention import make_call
from support.models import BY_NAME, run, words
from torch import Tensor, nn

import attndrop_repro as attndrop
from attndrop_repro.config.errors import AttndropError, UsageError
from attndrop_repro.functional.arora import arora_penalty
from attndrop_repro.methods import Site, Taps, build
from attndrop_repro.methods.taps import AttentionTap, LinearTap

TARGETS = ("q", "k", "v", "av", "ff")
HEADS, WIDTH, TOKENS, BATCH = 2, 4, 5, 3
C = HEADS * WIDTH


def weights(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(3, C, C, generator=generator, dtype=torch.float64)
    return w[0], w[1], w[2]


def attention_tap(
    x: Tensor, allowed: Tensor | None = None, layer: int = 0, layers: int = 1, **fields: object
) -> AttentionTap:
    """What a plain attention with biases would show."""
    w_q, w_k, w_v = weights()
    generator = torch.Generator().manual_seed(9)
    bias = torch.randn(3, C, generator=generator, dtype=torch.float64)
    q, k, v = (
        (x @ w.T + b).unflatten(-1, (HEADS, WIDTH)).transpose(1, 2)
        for w, b in zip((w_q, w_k, w_v), bias, strict=True)
    )
    call = make_call(BATCH, HEADS, TOKENS, width=WIDTH, layer=layer, layers=layers)
    call = call.replace(q=q, k=k, v=v, x=x, allowed=allowed, **fields)
    return AttentionTap(call, x, w_q, w_k, w_v)


def tokens(seed: int = 1, length: int = TOKENS) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(BATCH, length, C, generator=generator, dtype=torch.float64)


def value(name: str, taps: Taps, **settings: object) -> float:
    return build(name, {"lam": 1.0, **settings}).penalty(taps).item()


def lost(target: str, tap: AttentionTap, kept: Tensor) -> Tensor:
    """What the output of a target loses when tokens become `kept`, heads merged; (draws, B)."""
    x, w_q, w_k, w_v = tap.x, tap.w_q, tap.w_k, tap.w_v
    assert x is not None
    gone = x - kept
    if target == "q":
        output = gone @ w_q.T @ (x @ w_k.T).mT  # type: ignore[union-attr]
    elif target == "k":
        output = x @ w_q.T @ (gone @ w_k.T).mT  # type: ignore[union-attr]
    else:
        output = gone @ w_v.T  # type: ignore[union-attr]
        if target == "av":
            a = tap.call.logits().softmax(-1)
            by_head = output.unflatten(-1, (HEADS, WIDTH)).movedim(-2, -3)
            output = (a @ by_head).movedim(-3, -2).flatten(-2)
    return output.square().sum((-2, -1))


@pytest.mark.parametrize("target", ["q", "k", "v", "av"])
def test_forms_against_the_dropping_itself(target: str) -> None:
    """With biases and two heads: `exact` and `inverted` are their masks' mean, `paper` neither."""
    tap, p = attention_tap(tokens()), 0.3
    assert tap.x is not None
    torch.manual_seed(0)
    keep = torch.rand(20_000, *tap.x.shape, dtype=torch.float64) >= p
    printed = value("explicit-dropout", Taps([tap]), p=p, targets=[target])
    for form, kept in (("exact", tap.x * keep), ("inverted", tap.x * keep / (1 - p))):
        draws = lost(target, tap, kept).mean(-1) / 2
        error = draws.std().item() / len(draws) ** 0.5
        ours = value("explicit-dropout", Taps([tap]), p=p, targets=[target], form=form)
        assert abs(ours - draws.mean().item()) < 4 * error
        assert abs(printed - draws.mean().item()) > 20 * error


def test_the_printed_forms_are_norms_of_projections() -> None:
    tap, p = attention_tap(tokens()), 0.3
    x = tap.x
    q, k, v = x @ tap.w_q.T, x @ tap.w_k.T, x @ tap.w_v.T  # type: ignore[operator, union-attr]
    by_head = v.unflatten(-1, (HEADS, WIDTH)).transpose(1, 2)
    norms = {
        "q": q @ k.mT, "k": q @ k.mT, "v": v, "av": tap.call.logits().softmax(-1) @ by_head,
    }  # fmt: skip
    for target, output in norms.items():
        expected = p**2 / 2 * output.square().sum().item() / BATCH
        ours = value("explicit-dropout", Taps([tap]), p=p, targets=[target])
        assert ours == pytest.approx(expected, rel=1e-12)


def test_scaled_logits_and_heads() -> None:
    tap = attention_tap(tokens())
    plain = value("explicit-dropout", Taps([tap]), targets=["q"])
    scaled = value("explicit-dropout", Taps([tap]), targets=["q"], scaled=True)
    assert scaled == pytest.approx(plain * tap.call.scale**2, rel=1e-12)
    heads = value("explicit-dropout", Taps([tap]), targets=["q"], heads="sum")
    mean = value("explicit-dropout", Taps([tap]), targets=["q"], heads="mean")
    assert mean == pytest.approx(heads / HEADS, rel=1e-12)
    assert abs(heads / plain - 1) > 0.01


@pytest.mark.parametrize("name", ["explicit-dropout", "arora"])
@pytest.mark.parametrize("form", ["paper", "exact", "inverted"])
def test_padding_never_counts(name: str, form: str) -> None:
    """However far the batch is padded, whatever stands there, and in any layout of the mask."""
    settings = {"targets": TARGETS} if name == "arora" else {"targets": TARGETS, "form": form}
    if name == "arora" and form != "paper":
        return
    real = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]]).bool()
    w_ff = weights(3)[0]

    def at(junk: float, mask: Tensor) -> float:
        x = torch.where(real[..., None], tokens(), junk)
        tap = attention_tap(x, allowed=mask)
        taps = Taps([tap])
        taps.linear.append(LinearTap(Site("fc1", 0, 1, "fc1"), x, w_ff, taps.real((BATCH, TOKENS))))
        return value(name, taps, **settings)

    first = at(0.0, real[:, None, None])
    assert at(100.0, real[:, None, None]) == pytest.approx(first, rel=1e-10)
    # as libraries hand it over when it is joined with other masks
    full = real[:, None, None].expand(-1, 1, TOKENS, -1)
    assert at(7.0, full) == pytest.approx(first, rel=1e-10)
    if name == "explicit-dropout":  # one by one, without padding
        singles = 0.0
        for length, x in zip((5, 3, 1), tokens(), strict=True):
            tap = attention_tap(x[None, :length].expand(BATCH, -1, -1))
            taps = Taps([tap], [LinearTap(Site("fc1", 0, 1, "fc1"), tap.x, w_ff)])  # type: ignore[arg-type]
            singles += value(name, taps, **settings) / 3
        assert first == pytest.approx(singles, rel=1e-10)


def test_arora_on_attention() -> None:
    tap = attention_tap(tokens())
    x, w_v = tap.x, tap.w_v
    assert x is not None
    assert w_v is not None
    for target, w in (("q", tap.w_q), ("k", tap.w_k), ("v", w_v)):
        expected = arora_penalty(x, w, 0.2).item()  # type: ignore[arg-type]
        assert value("arora", Taps([tap]), targets=[target]) == pytest.approx(expected, rel=1e-12)
    expected = 0.0
    a = tap.call.logits().softmax(-1)
    for head in range(HEADS):
        mixed = a[:, head] @ x
        for j in range(C):
            column = w_v[head * WIDTH : (head + 1) * WIDTH, j].square().sum()
            expected += 0.25 * (column * mixed[..., j].square().mean()).item()
    assert value("arora", Taps([tap]), targets=["av"]) == pytest.approx(expected, rel=1e-12)


def test_coefficients_by_target_and_layer() -> None:
    taps = Taps([attention_tap(tokens(i), layer=i, layers=2) for i in range(2)])
    one = [
        {t: value("explicit-dropout", Taps([tap]), targets=[t]) for t in ("q", "v")}
        for tap in taps.attention
    ]
    total = value("explicit-dropout", taps, targets=["q", "v"], lam=[0.5, 2.0])
    assert total == pytest.approx(0.5 * sum(one[0].values()) + 2 * sum(one[1].values()), rel=1e-12)
    mixed = value(
        "explicit-dropout", taps, targets=["q", "v"], lam=3.0, lam_by_target={"v": [0.0, 1.0]}
    )
    expected = 3 * (one[0]["q"] + one[1]["q"]) + one[1]["v"]
    assert mixed == pytest.approx(expected, rel=1e-12)
    rates = value("explicit-dropout", taps, targets=["v"], p=[0.1, 0.4])
    assert rates == pytest.approx(one[0]["v"] / 4 + one[1]["v"] * 4, rel=1e-12)
    layer = value("explicit-dropout", taps, targets=["v"], layers=[1])
    assert layer == pytest.approx(one[1]["v"], rel=1e-12)


@pytest.mark.parametrize(
    ("settings", "words_"),
    [
        ({"p": 1.0}, r"\[0, 1\)"),
        ({"p": [[0.1, 0.2]]}, "number, a list by layer or a schedule"),
        ({"lam": {"learnable": True, "init": 1.0}}, "number, a list by layer or a schedule"),
        ({"targets": ["qk"]}, "targets"),
        ({"targets": []}, "targets"),
        ({"lam_by_target": {"x": 1.0}}, "lam_by_target"),
        ({"form": "printed"}, "form"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, object], words_: str) -> None:
    with pytest.raises(UsageError, match=words_) as caught:
        build("explicit-dropout", settings)
    assert "\n" not in str(caught.value)


def test_idle_at_zero() -> None:
    for name in ("explicit-dropout", "arora"):
        assert build(name, {"p": 0}).idle
        assert build(name, {"lam": 0}).idle
        assert build(name, {"targets": ["v"], "lam_by_target": {"v": 0}}).idle
        assert not build(name, {"lam": 0, "targets": "v", "lam_by_target": {"v": 1}}).idle


@pytest.mark.parametrize("name", ["explicit-dropout", "arora"])
@pytest.mark.parametrize("model", ["vit", "swin", "beit", "torch-encoder", "bert", "t5"])
def test_in_models_of_every_kind(name: str, model: str) -> None:
    tiny = BY_NAME[model]
    network, x = tiny.make(), tiny.batch(4)
    handle = attndrop.apply(network, name, targets=TARGETS, lam=1.0)
    plain = run(network.eval(), x)
    outputs = handle.outputs(x)
    assert torch.equal(outputs[0], plain)
    network.train()
    y = torch.zeros(plain.shape[:-1], dtype=torch.long)
    loss = handle.loss(x, y, lambda z, t: F.cross_entropy(z.flatten(0, -2), t.flatten()))
    loss.backward()
    assert handle.parts["penalty"] > 0
    assert loss.isfinite()
    assert loss.item() == pytest.approx(
        (handle.parts["objective"] + handle.parts["penalty"]).item()
    )


def test_repeating_the_batch_changes_nothing_with_windows_too() -> None:
    for model in ("vit", "swin"):
        tiny = BY_NAME[model]
        network, x = tiny.make().double(), tiny.batch(2).double()
        seen = []
        for times in (1, 3):
            for name in ("explicit-dropout", "arora"):
                handle = attndrop.apply(network.train(), name, targets=TARGETS, lam=1.0)
                handle.loss(x.repeat(times, 1, 1, 1), None, lambda z, _: z.sum())
                seen.append(handle.parts["penalty"].item())
                handle.remove()
        assert seen[2:] == pytest.approx(seen[:2], rel=1e-10)


def test_padding_of_a_real_batch_changes_nothing() -> None:
    tiny = BY_NAME["bert"]
    network = tiny.make().double()
    short, long = words(3, 6, padded=2), words(3, 6, padded=2)
    long = {
        "input_ids": F.pad(short["input_ids"], (0, 4), value=1),
        "attention_mask": F.pad(short["attention_mask"], (0, 4)),
    }
    for name in ("explicit-dropout", "arora"):
        handle = attndrop.apply(network.train(), name, targets=TARGETS, lam=1.0)
        penalties = []
        for batch in (short, long):
            handle.loss(batch, None, lambda z, _: z.sum())
            penalties.append(handle.parts["penalty"].item())
        handle.remove()
        assert penalties[0] == pytest.approx(penalties[1], rel=1e-10)


def test_feed_forward_alone_needs_no_projections() -> None:
    tiny = BY_NAME["vit"]
    network, x = tiny.make(), tiny.batch(3)
    handle = attndrop.apply(network, "explicit-dropout", targets="ff", lam=1.0)
    inputs: list[Tensor] = []
    for block in network.blocks:  # type: ignore[union-attr]
        for layer in (block.mlp.fc1, block.mlp.fc2):
            layer.register_forward_hook(lambda m, args, out: inputs.append(args[0].detach()))
    handle.loss(x, None, lambda z, _: z.sum())
    expected, layers = 0.0, [m for b in network.blocks for m in (b.mlp.fc1, b.mlp.fc2)]  # type: ignore[union-attr]
    for layer, seen in zip(layers, inputs, strict=True):
        assert isinstance(layer, nn.Linear)
        expected += 0.02 * F.linear(seen, layer.weight).square().sum().item() / 3
    assert handle.parts["penalty"].item() == pytest.approx(expected, rel=1e-5)


def test_what_cannot_be_seen_is_refused_in_one_line() -> None:
    tap = attention_tap(tokens())
    blind = AttentionTap(tap.call, None, None, None, None)
    with pytest.raises(AttndropError, match="needs the tokens and projections") as caught:
        value("explicit-dropout", Taps([blind]), targets=["v"])
    assert "\n" not in str(caught.value)
    with pytest.raises(AttndropError, match="found nothing to penalise"):
        value("explicit-dropout", Taps([tap]), targets=["v"], kinds=["cross"])


def test_cross_attention_keeps_queries_and_memory_apart() -> None:
    x, memory = tokens(1), tokens(2)
    tap = attention_tap(x, memory=memory)
    q, k = x @ tap.w_q.T, memory @ tap.w_k.T  # type: ignore[union-attr]
    for target in ("q", "k"):
        ours = value("explicit-dropout", Taps([tap]), targets=[target])
        assert ours == pytest.approx(0.02 * (q @ k.mT).square().sum().item() / BATCH, rel=1e-12)
    v = value("explicit-dropout", Taps([tap]), targets=["v"])
    norm = (memory @ tap.w_v.T).square().sum().item()  # type: ignore[union-attr]
    assert v == pytest.approx(0.02 * norm / BATCH, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_autocast(dtype: torch.dtype) -> None:
    tiny = BY_NAME["vit"]
    for form in ("paper", "exact"):
        network, x = tiny.make(), tiny.batch(2)
        handle = attndrop.apply(network, "explicit-dropout", targets=TARGETS, lam=1.0, form=form)
        network.train()
        handle.loss(x, None, lambda z, _: z.sum())
        exact = handle.parts["penalty"].item()
        with torch.autocast("cpu", dtype=dtype):
            handle.loss(x, None, lambda z, _: z.sum()).backward()
        assert handle.parts["penalty"].item() == pytest.approx(exact, rel=0.05)
        network.to(dtype)
        loss = handle.loss(x.to(dtype), None, lambda z, _: z.float().sum())
        assert loss.isfinite()
