"""Under torch.compile a strength that changes every step is not compiled anew every step."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F

from attndrop_repro.adapters import apply


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("dropkey", {"p": {"schedule": "linear", "value": 0.3}}),
        ("attentiondrop-blur", {"sigma_max": {"schedule": "v-shape", "value": 1.0}}),
    ],
)
def test_graphs_are_made_for_the_first_values_and_used_for_all_others(method, settings):
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=4, patch_size=2, in_chans=1, embed_dim=8, depth=1,
        num_heads=2, mlp_ratio=1, num_classes=3,
    ).train()  # fmt: skip
    handle = apply(model, method, settings)
    forward = torch.compile(model, backend=backend)
    x, y = torch.rand(2, 1, 4, 4), torch.tensor([0, 2])
    made = []
    for step in range(16):
        handle.at(step, 16)
        handle.loss(x, y, F.cross_entropy, forward=forward).backward()
        made.append(len(graphs))
    # strengths go down, through 0 and up: a few kinds of value, however many values
    assert made[1] == made[5]
    assert made[10] == made[15]
    assert made[15] <= 8
