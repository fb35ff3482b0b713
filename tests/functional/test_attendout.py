"""AttendOut's equations against `torch.distributions` and loops."""

import pytest
import torch
from torch.distributions import Bernoulli

from attndrop_repro.functional.attendout import Drawn, advantage, drop_scores, policy_loss


def scores(seed: int = 0, rows: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 2, 4, 5, generator=generator, dtype=torch.float64)


def test_drawn_against_distributions() -> None:
    s = scores().mul(5)
    dropped = scores(1) > 0
    visible = scores(2)[:, :1, :1] > -0.5
    law = Bernoulli(logits=s)
    for mask in (None, visible):
        shown = torch.ones_like(s, dtype=torch.bool) if mask is None else mask.expand(s.shape)
        drawn = Drawn.of(s, dropped, mask)
        for value, each in (
            (drawn.log_probability, law.log_prob(dropped.double())),
            (drawn.entropy, law.entropy()),
            (drawn.rate, law.mean),
        ):
            expected = torch.stack([e[m].mean() for e, m in zip(each, shown, strict=True)])
            torch.testing.assert_close(value, expected)
    nothing = Drawn.of(s, dropped, torch.zeros(1, 1, 1, 1, dtype=torch.bool))
    assert nothing.log_probability.abs().sum() == 0


def test_certain_masks_stay_finite() -> None:
    s = torch.tensor([[[[1e4, -1e4]]]], requires_grad=True)
    drawn = Drawn.of(s, torch.tensor([[[[True, False]]]]), None)
    total = drawn.log_probability.sum() + drawn.entropy.sum() + drawn.rate.sum()
    total.backward()
    assert drawn.log_probability.item() == 0
    assert drawn.entropy.item() == 0
    assert s.grad is not None
    assert s.grad.isfinite().all()


def test_scores_are_a_low_rank_product() -> None:
    generator = torch.Generator().manual_seed(0)
    x, memory, w_q, b_q, w_k, level = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((2, 4, 6), (2, 5, 6), (3, 6, 2), (3, 2), (3, 6, 2), (3,))
    )
    s = drop_scores(x, memory, w_q, b_q, w_k, level)
    assert s.shape == (2, 3, 4, 5)
    nx, nm = (t - t.mean(-1, keepdim=True) for t in (x, memory))
    nx, nm = (t / (t.square().mean(-1, keepdim=True) + 1e-5).sqrt() for t in (nx, nm))
    for b, h, q, k in ((0, 0, 0, 0), (1, 2, 3, 4), (1, 0, 2, 1)):
        expected = (nx[b, q] @ w_q[h] + b_q[h]) @ (nm[b, k] @ w_k[h]) / 2**0.5 + level[h]
        assert s[b, h, q, k].item() == pytest.approx(expected.item(), rel=1e-12)
    scaled = drop_scores(x * 1000, memory * 1000, w_q, b_q, w_k, level)
    torch.testing.assert_close(scaled, s, rtol=1e-4, atol=1e-4)
    half = drop_scores(x.half(), memory.half(), *(t.float() for t in (w_q, b_q, w_k, level)))
    assert half.dtype == torch.float32


def test_advantage_is_self_critical_and_centred() -> None:
    plain, dropped = torch.tensor([5.0, 1.0, 2.0]), torch.tensor([4.0, 3.0, 2.0])
    assert advantage(plain, dropped).tolist() == pytest.approx([4 / 3, -5 / 3, 1 / 3])
    assert advantage(plain[:1], dropped[:1]).tolist() == [1.0]


def test_policy_gradient_agrees_with_the_exact_one() -> None:
    """One element, reward 1 for dropping it: the mean of REINFORCE is d/ds sigmoid(s)."""
    s = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(0)
    rows = 20_000
    dropped = torch.rand(rows, 1, 1, 1, dtype=torch.float64) < s.detach().sigmoid()
    reward = dropped[:, 0, 0, 0].double()
    drawn = Drawn.of(s.expand(rows, 1, 1, 1), dropped, None)
    loss = policy_loss(advantage(reward, torch.zeros_like(reward)), [drawn], 0.2, entropy=0, hold=0)
    (gradient,) = torch.autograd.grad(loss, s)
    p = s.sigmoid().item()
    assert gradient.item() == pytest.approx(-p * (1 - p), rel=0.03)


def test_entropy_and_rate_pull_where_they_should() -> None:
    s = torch.full((2, 1, 2, 2), 2.0, requires_grad=True)
    drawn = [Drawn.of(s, torch.ones(2, 1, 2, 2, dtype=torch.bool), None)]
    for weights in ({"entropy": 1.0, "hold": 0.0}, {"entropy": 0.0, "hold": 1.0}):
        loss = policy_loss(torch.zeros(2), drawn, 0.2, **weights)
        (gradient,) = torch.autograd.grad(loss, s, retain_graph=True)
        assert (gradient > 0).all()  # descent lowers a probability above 1/2 and above the rate
    windows = [Drawn.of(scores(rows=6), scores(1, rows=6) > 0, None)]  # 3 windows an example
    a = torch.tensor([1.0, -2.0], dtype=torch.float64)
    expected = -(a * windows[0].log_probability.reshape(2, 3).mean(1)).mean()
    value = policy_loss(a, windows, 0.5, entropy=0, hold=0)
    assert value.item() == pytest.approx(expected.item(), rel=1e-12)
