"""A valid PAC-Bayes certificate for a trained network, with Gaussians over its weights.

Prior N(w_0, s^2 I) around the initial weights, which know nothing of the data; posterior
N(w, s^2 I) around the trained ones. The scale s is chosen from a grid fixed beforehand, and the
probability of failing is shared out over the grid and over the two places where chance enters: the
data (McAllester) and the sampled weights (Hoeffding). For networks of any size the bound is usually
vacuous, and then it says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from attndrop_repro import randomness
from attndrop_repro.config.errors import AttndropError
from attndrop_repro.config.progress import Progress, Silent
from attndrop_repro.theory.bound import Bound, gaussian_kl, mcallester, monte_carlo_risk

SCALES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)


@dataclass(frozen=True)
class Certificate:
    """What can be said of the risk of one posterior.

    Attributes:
        scale: s.
        kl: KL(Q || P) in nats.
        sampled_risk: Mean 0-1 loss of the sampled networks on the training examples.
        empirical_risk: Its upper limit, with the confidence of the Monte Carlo.
        bound: The bound on the true risk of the posterior.
        n: Training examples.
        draws: Sampled networks.
        delta: Probability that any of the grid's certificates fails.
    """

    scale: float
    kl: float
    sampled_risk: float
    empirical_risk: float
    bound: Bound
    n: int
    draws: int
    delta: float

    @property
    def verdict(self) -> str:
        """In words."""
        return "vacuous" if self.bound.vacuous else f"risk at most {self.bound.value:.3f}"


def squared_distance(model: nn.Module, initial: Mapping[str, Tensor]) -> float:
    """|w - w_0|^2 over all parameters.

    Raises:
        AttndropError: The two have not the same parameters.
    """
    trained = dict(model.named_parameters())
    if {k: v.shape for k, v in trained.items()} != {
        k: initial[k].shape for k in trained if k in initial
    }:
        raise AttndropError("the initial weights belong to another model: names or shapes differ")
    return sum(
        float((value.detach().double() - initial[name].to(value.device).double()).square().sum())
        for name, value in trained.items()
    )


def certify(
    model: nn.Module,
    initial: Mapping[str, Tensor],
    images: Tensor,
    labels: Tensor,
    *,
    scales: Sequence[float] = SCALES,
    draws: int = 50,
    delta: float = 0.05,
    seed: int = 0,
    batch_size: int = 512,
    progress: Progress | None = None,
) -> list[Certificate]:
    """Certificates for every scale of the grid; all hold together with probability 1 - delta.

    Args:
        model: The trained network; logits (B, classes) from images.
        initial: Its initial weights by name.
        images: The training examples, as the network takes them.
        labels: (N,) int64.
        scales: The grid, fixed before looking at the data.
        draws: Networks sampled for each scale.
        delta: Probability of failing.
        seed: Of the draws.
        batch_size: Examples at once.
        progress: What to report to.

    Raises:
        AttndropError: No examples, or the initial weights belong to another model.
    """
    n = len(labels)
    if n == 0:
        raise AttndropError("a bound needs training examples; there are none")
    distance = squared_distance(model, initial)
    share = delta / (2 * len(scales))
    report = progress or Silent()
    found = []
    for index, scale in enumerate(scales):
        kl = gaussian_kl(distance, scale)
        risks = []
        for draw in range(draws):
            weights = _sample(model, scale, seed, index, draw)
            risks.append(_risk(model, weights, images, labels, batch_size))
            report.update(index * draws + draw + 1, len(scales) * draws, scale=scale)
        mean = sum(risks) / draws
        upper = monte_carlo_risk(mean, draws, share)
        bound = mcallester(upper, kl, n, share)
        found.append(Certificate(scale, kl, mean, upper, bound, n, draws, delta))
    return found


def _sample(model: nn.Module, scale: float, seed: int, index: int, draw: int) -> dict[str, Tensor]:
    generator = randomness.torch_stream(seed, "posterior", index, draw)
    return {
        name: value.detach()
        + scale * torch.randn(value.shape, generator=generator).to(value.device, value.dtype)
        for name, value in model.named_parameters()
    }


@torch.no_grad()
def _risk(
    model: nn.Module, weights: dict[str, Tensor], images: Tensor, labels: Tensor, batch_size: int
) -> float:
    was_training = model.training
    model.eval()
    try:
        wrong = 0
        for start in range(0, len(labels), batch_size):
            rows = slice(start, start + batch_size)
            logits = functional_call(model, weights, (images[rows],))
            wrong += int((logits.argmax(-1) != labels[rows]).sum())
    finally:
        model.train(was_training)
    return wrong / len(labels)
