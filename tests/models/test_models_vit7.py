"""The 7-layer ViT: the facts that the paper and its cited code state, and its arithmetic."""

import pytest
import torch
import torch.nn.functional as F

import attndrop_repro as attndrop
from attndrop_repro.models.vit7 import ViT7


def tiny() -> ViT7:
    torch.manual_seed(0)
    return ViT7(3, 16, 3, patches=4, embed_dim=24, depth=2, num_heads=4, hidden=12).eval()


def test_stated_sizes() -> None:
    model = ViT7(10, 32, 3)
    assert len(model.blocks) == 7
    assert model.pos_embed.shape == (1, 65, 384)
    block = model.blocks[0]
    assert block.attn.num_heads == 12
    assert block.mlp.fc1.weight.shape == (384, 384)
    assert block.attn.scale == pytest.approx(384**-0.5)
    linear = 6 * (384 * 384 + 384) + 4 * 384  # q, k, v, projection, two of the MLP; two norms
    outside = 384 * 48 + 384 + 384 + 65 * 384 + 2 * 384 + 3850
    assert sum(p.numel() for p in model.parameters()) == 7 * linear + outside


def test_by_hand() -> None:
    model, x = tiny().double(), torch.rand(2, 3, 16, 16, dtype=torch.float64)
    with torch.no_grad():
        patches = F.unfold(x, 4, stride=4).transpose(1, 2)
        tokens = patches @ model.patch_embed.weight.flatten(1).T + model.patch_embed.bias
        tokens = torch.cat([model.cls_token.expand(2, -1, -1), tokens], 1) + model.pos_embed
        for block in model.blocks:
            h = block.norm1(tokens)
            q, k, v = (h @ block.attn.qkv.weight.T + block.attn.qkv.bias).chunk(3, -1)
            heads = []
            for i in range(4):
                part = slice(6 * i, 6 * i + 6)
                scores = q[..., part] @ k[..., part].transpose(1, 2) / 24**0.5
                heads.append(scores.softmax(-1) @ v[..., part])
            tokens = tokens + block.attn.proj(torch.cat(heads, -1))
            h = block.norm2(tokens)
            tokens = tokens + F.gelu(block.mlp.fc2(F.gelu(block.mlp.fc1(h))))
        expected = model.head(model.norm(tokens)[:, 0])
        assert torch.allclose(model(x), expected, atol=1e-12)


def test_methods_reach_it() -> None:
    model = tiny()
    x = torch.rand(2, 3, 16, 16)
    with torch.no_grad():
        plain = model(x)
        handle = attndrop.apply(model, "attention-dropout", p=0.5)
        assert torch.equal(model(x), plain)
        model.train()
        assert not torch.allclose(model(x), model(x))
        handle.remove()
    assert torch.allclose(model(x), plain)
