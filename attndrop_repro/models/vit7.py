"""The 7-layer Vision Transformer of the explicit-dropout paper's CIFAR experiments.

Facts from the paper (Agrawal, Oleksiienko, Iosifidis) and the code base that it cites: width 384,
12 heads, MLP hidden width 384, 8 x 8 patches and a class token, GELU after both linear layers,
scores divided by sqrt(384) (the model's width, not the head's).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attndrop_repro.models.registry import register


class Attention(nn.Module):
    """Multi-head self-attention whose scores are divided by the root of the model's width.

    Args:
        width: Of the model, C.
        heads: Number of heads.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.fused_attn = True  # says, as in timm, that SDPA is what the forward calls
        self.num_heads, self.head_dim, self.scale = heads, width // heads, width**-0.5
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, N, C) to tokens (B, N, C)."""
        batch, tokens, width = x.shape
        qkv = self.qkv(x).view(batch, tokens, 3, self.num_heads, self.head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        z = F.scaled_dot_product_attention(q, k, v, scale=self.scale)
        out: Tensor = self.proj(z.transpose(1, 2).reshape(batch, tokens, width))
        return out


class Mlp(nn.Module):
    """Two linear layers, each with GELU after it.

    Args:
        width: Of the model.
        hidden: Of the hidden layer.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, N, C) to tokens (B, N, C)."""
        out: Tensor = F.gelu(self.fc2(F.gelu(self.fc1(x))))
        return out


class Block(nn.Module):
    """Pre-norm residual block.

    Args:
        width: Of the model.
        heads: Number of heads.
        hidden: Hidden width of the MLP.
    """

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, N, C) to tokens (B, N, C)."""
        x = x + self.attn(self.norm1(x))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class ViT7(nn.Module):
    """The whole classifier.

    Args:
        num_classes: Logits.
        img_size: Pixels a side.
        in_chans: Channels.
        patches: Patches a side; the class token comes in addition.
        embed_dim: Width, C.
        depth: Blocks.
        num_heads: Heads.
        hidden: Hidden width of the MLPs.
    """

    num_prefix_tokens = 1

    def __init__(
        self,
        num_classes: int,
        img_size: int,
        in_chans: int,
        patches: int = 8,
        embed_dim: int = 384,
        depth: int = 7,
        num_heads: int = 12,
        hidden: int = 384,
    ) -> None:
        super().__init__()
        if img_size % patches or embed_dim % num_heads:
            raise ValueError(
                f"{img_size} pixels must divide into {patches} patches, and width {embed_dim} "
                f"into {num_heads} heads"
            )
        patch = img_size // patches
        self.patch_embed = nn.Conv2d(in_chans, embed_dim, patch, stride=patch)
        self.cls_token = nn.Parameter(torch.randn(1, 1, embed_dim))
        self.pos_embed = nn.Parameter(torch.randn(1, patches**2 + 1, embed_dim))
        self.blocks = nn.Sequential(*(Block(embed_dim, num_heads, hidden) for _ in range(depth)))
        self.norm = nn.LayerNorm(embed_dim)
        self.head = nn.Linear(embed_dim, num_classes)

    def no_weight_decay(self) -> set[str]:
        """Parameters that weight decay leaves alone."""
        return {"cls_token", "pos_embed"}

    def forward(self, x: Tensor) -> Tensor:
        """Normalised images (B, C, H, W) to logits (B, classes)."""
        tokens = self.patch_embed(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls_token.expand(len(x), -1, -1), tokens], dim=1)
        tokens = self.blocks(tokens + self.pos_embed)
        logits: Tensor = self.head(self.norm(tokens)[:, 0])
        return logits


@register("vit7")
def vit7(**arguments: Any) -> nn.Module:
    """The 7-layer ViT."""
    return ViT7(**arguments)
