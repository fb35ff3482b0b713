"""Batches without images, and models in double precision, under every method."""

import pytest
import timm
import torch
import torch.nn.functional as F

import attndrop_repro as attndrop

METHODS = (
    "attention-dropout", "attentiondrop-blur", "attentiondrop-hard", "attendout", "dropattention",
    "dropconnect", "dropdim", "drophead", "dropkey", "dropout", "stochastic-depth",
)  # fmt: skip


def small(dtype: torch.dtype) -> torch.nn.Module:
    return timm.create_model(
        "vit_tiny_patch16_224", img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2,
        num_classes=3,
    ).to(dtype)  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_no_images_give_no_outputs(method: str) -> None:
    model = small(torch.float32).train()
    attndrop.apply(model, method)
    assert model(torch.zeros(0, 3, 16, 16)).shape == (0, 3)


@pytest.mark.parametrize("method", METHODS)
def test_double_precision(method: str) -> None:
    model = small(torch.float64).train()
    handle = attndrop.apply(model, method)
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    loss = handle.loss(x, torch.tensor([0, 1]), F.cross_entropy)
    loss.backward()
    assert loss.dtype == torch.float64
    assert loss.isfinite()
