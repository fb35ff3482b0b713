"""AttendOut's generator as reconstructed here: scores, the chance of a mask, and how it is learned.

The paper (arXiv 2104.04692) is known to us by its abstract only; these equations are ours.

Shapes: B examples, H heads, Q queries, K keys, C width of the tokens, R rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


def drop_scores(
    x: Tensor, memory: Tensor, w_q: Tensor, b_q: Tensor, w_k: Tensor, level: Tensor
) -> Tensor:
    """Log-odds of dropping each attention element: a low-rank product, as attention's own logits.

    (LN(x) w_q + b_q) . (LN(memory) w_k) / sqrt(R) + level. By b_q a key can be scored whatever the
    query; LN has no parameters and makes the scores independent of the scale of the tokens.

    Args:
        x: Tokens of the queries, (B, Q, C).
        memory: Tokens of the keys, (B, K, C).
        w_q: (H, C, R).
        b_q: (H, R).
        w_k: (H, C, R).
        level: (H,), the log-odds where the product is 0.

    Returns:
        (B, H, Q, K), in float32 at least.
    """
    q_bhqr = torch.einsum("bqc,hcr->bhqr", _normal(x).to(w_q.dtype), w_q) + b_q[:, None]
    k_bhkr = torch.einsum("bkc,hcr->bhkr", _normal(memory).to(w_k.dtype), w_k)
    scores: Tensor = q_bhqr @ k_bhkr.mT / w_q.shape[-1] ** 0.5
    return scores + level[:, None, None]


@dataclass(frozen=True)
class Drawn:
    """What was drawn at one attention, per row of its batch, each a mean over visible elements.

    Attributes:
        log_probability: Of the masks drawn, (B,).
        entropy: Of the distribution they were drawn from, (B,), in nats.
        rate: Probability to drop, (B,).
    """

    log_probability: Tensor
    entropy: Tensor
    rate: Tensor

    @classmethod
    def of(cls, scores: Tensor, dropped: Tensor, visible: Tensor | None) -> Drawn:
        """From scores (B, H, Q, K), masks that are True where dropped, and what may be attended."""
        p = scores.sigmoid()
        log_drop, log_keep = F.logsigmoid(scores), F.logsigmoid(-scores)
        return cls(
            _mean(torch.where(dropped, log_drop, log_keep), visible),
            _mean(-p * log_drop - (1 - p) * log_keep, visible),
            _mean(p, visible),
        )


def advantage(plain: Tensor, dropped: Tensor) -> Tensor:
    """How much better than others an example did with its masks, (B,), in nats.

    The reward is self-critical: the loss of an example without dropping minus that with it, so
    that hard examples are not punished for being hard. Its batch mean, which says nothing about
    which masks were better, is taken off. It is not divided by its deviation: while the model
    relies on nothing that dropping could touch, rewards are noise, and as small as that they leave
    the entropy bonus in charge.

    Args:
        plain: Losses without dropping, (B,).
        dropped: Losses with dropping, (B,).
    """
    reward = plain - dropped
    return reward - reward.mean() if len(reward) > 1 else reward


def policy_loss(
    advantages: Tensor, drawn: list[Drawn], p: float, *, entropy: float, hold: float
) -> Tensor:
    """REINFORCE with an entropy bonus and a rate to hold; a scalar, averaged over layers.

    - mean(advantage log P(mask)) - entropy mean(H) + hold (rate - p)^2 / (p (1 - p))

    Args:
        advantages: (B,), without gradient.
        drawn: What was drawn at each attention; rows may be windows, B * windows of them.
        p: The rate that every layer holds on average.
        entropy: Weight of the entropy bonus.
        hold: Weight of the distance from the rate.
    """
    terms = []
    for layer in drawn:
        chance = layer.log_probability.reshape(len(advantages), -1).mean(-1)
        off = (layer.rate.mean() - p).square() / (p * (1 - p))
        terms.append(hold * off - (advantages * chance).mean() - entropy * layer.entropy.mean())
    return torch.stack(terms).mean()


def _normal(x: Tensor) -> Tensor:
    x = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    return F.layer_norm(x, x.shape[-1:])


def _mean(values: Tensor, visible: Tensor | None) -> Tensor:
    """(B, H, Q, K) averaged over the visible elements of each row of the batch."""
    if visible is None:
        return values.mean((1, 2, 3))
    shown = visible.expand(values.shape)
    return values.masked_fill(~shown, 0).sum((1, 2, 3)) / shown.sum((1, 2, 3)).clamp(min=1)
