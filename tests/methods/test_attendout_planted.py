"""A planted task: labels leak through one token in training only; AttendOut learns to drop it.

The other tokens say the label too, but less clearly. A model that reads the leak fails without it.
Random dropping at the same rate leaves the leak in sight; AttendOut is told, on held-out examples
where the token says nothing, that dropping it helps.
"""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attndrop_repro as attndrop
from attndrop_repro.functional.attendout import drop_scores
from attndrop_repro.methods.mask_generator import NAMES
from attndrop_repro.randomness import seed_regulariser, stream, torch_stream

TOKENS, CLASSES, INPUT, WIDTH = 6, 4, 8, 16
P, STEPS, SEEDS = 0.3, 300, range(5)


class Attention(nn.Module):
    """Two heads, nothing beside torch's fused attention."""

    num_heads = 2

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Reader(nn.Module):
    """Attention is the only way from the tokens to the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(INPUT, WIDTH)
        self.place = nn.Parameter(torch.randn(TOKENS, WIDTH) / 2)
        self.attention = Attention()
        self.head = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, CLASSES)
        )

    def tokens(self, x: Tensor) -> Tensor:
        return F.layer_norm(self.embed(x) + self.place, (WIDTH,))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(self.tokens(x)).mean(1))


def examples(seed: int, part: str, count: int, leaks: bool) -> tuple[Tensor, Tensor]:
    fixed, drawn = torch_stream(0, "planted"), torch_stream(seed, "planted", part)
    signal = torch.randn(CLASSES, TOKENS - 1, INPUT, generator=fixed) / 2
    code = torch.randn(CLASSES, 1, INPUT, generator=fixed)
    y = torch.randint(CLASSES, (count,), generator=drawn)
    told = y if leaks else torch.randint(CLASSES, (count,), generator=drawn)
    noise = torch.randn(count, TOKENS, INPUT, generator=drawn)
    return torch.cat([code[told], signal[y]], 1) + noise, y


def train(method: str, seed: int) -> tuple[Reader, attndrop.Handle]:
    with stream(seed, "initialisation"):
        model = Reader()
    seed_regulariser(seed)
    handle = attndrop.apply(model, method, p=P)
    x, y = examples(seed, "train", 512, leaks=True)
    held_x, held_y = examples(seed, "held out", 512, leaks=False)
    optimizer, order = torch.optim.Adam(model.parameters(), lr=1e-3), torch_stream(seed, "order")
    for _ in range(STEPS):
        batch = torch.randint(512, (64,), generator=order)
        optimizer.zero_grad()
        handle.loss(x[batch], y[batch], F.cross_entropy).backward()
        optimizer.step()
        batch = torch.randint(512, (256,), generator=order)
        handle.update(held_x[batch], held_y[batch], F.cross_entropy)
    return model.eval(), handle


@torch.no_grad()
def accuracy(model: Reader, seed: int) -> float:
    x, y = examples(seed, "test", 2000, leaks=False)
    return (model(x).argmax(-1) == y).float().mean().item()


@torch.no_grad()
def drop_probability(model: Reader, handle: attndrop.Handle, seed: int) -> Tensor:
    """Of each token as a key, (TOKENS,)."""
    x = model.tokens(examples(seed, "test", 500, leaks=False)[0])
    generator = handle.method.generators.layers["0"]  # type: ignore[attr-defined]
    scores = drop_scores(x, x, *(generator.get_parameter(name) for name in NAMES))
    return scores.sigmoid().mean((0, 1, 2))


@pytest.fixture
def _one_thread() -> Iterator[None]:
    """So small a model loses most of its time when its operations are shared out."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("_one_thread")
def test_it_learns_to_drop_the_leak_and_beats_random_dropping() -> None:
    """Measured on one thread: accuracy 0.66 to 0.81 (mean 0.711) against 0.52 to 0.70 (0.626).

    The leak is dropped with probability 0.42 to 0.65, others with 0.09 to 0.41. The margins below
    leave room for other machines' rounding.
    """
    gains, leak = [], []
    for seed in SEEDS:
        model, handle = train("attendout", seed)
        dropped = drop_probability(model, handle, seed)
        assert dropped.argmax() == 0
        assert dropped.mean().item() == pytest.approx(P, abs=0.03)
        leak.append(dropped[0].item())
        rival, _ = train("dropkey", seed)
        gains.append(accuracy(model, seed) - accuracy(rival, seed))
    assert sum(gain > 0 for gain in gains) >= 4
    assert sum(gains) / len(gains) > 0.04
    assert sum(leak) / len(leak) > 1.5 * P
