"""Activation checkpointing: activations are computed again with the draws of their own pass."""

from __future__ import annotations

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import attndrop_repro as attndrop

X = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 2])


def gradients(method: str, how: str, *, sums: int = 1, **settings: object) -> Tensor:
    """Gradients of a step, or of the sum of several steps' losses, under one seed."""
    torch.manual_seed(0)
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=16, depth=2, num_heads=2,
        num_classes=3,
    ).train()  # fmt: skip
    handle = attndrop.apply(model, method, **settings)
    if how != "plain":
        for block in model.blocks:
            run, reentrant = block.forward, how == "reentrant"
            block.forward = lambda x, run=run, reentrant=reentrant: checkpoint(
                run, x, use_reentrant=reentrant
            )
    torch.manual_seed(1)
    losses = [handle.loss(X * (1 + n), Y, F.cross_entropy) for n in range(sums)]
    torch.stack(losses).sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("how", ["reentrant", "not reentrant"])
@pytest.mark.parametrize("sigma_per", ["batch", "layer", "sample"])
@pytest.mark.parametrize(
    ("method", "sums"), [("attentiondrop-blur+consistency", 1), ("attentiondrop-blur", 3)]
)
def test_each_pass_finds_its_own_sigma(how: str, sigma_per: str, method: str, sums: int) -> None:
    settings = {"sigma_max": 5.0, "sigma_per": sigma_per}
    plain = gradients(method, "plain", sums=sums, **settings)
    again = gradients(method, how, sums=sums, **settings)
    torch.testing.assert_close(again, plain, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("method", ["dropkey+consistency", "dropout+rdrop", "drophead+consistency"])
def test_masks_of_elements_come_again(method: str) -> None:
    torch.testing.assert_close(
        gradients(method, "not reentrant"), gradients(method, "plain"), rtol=1e-6, atol=1e-7
    )
