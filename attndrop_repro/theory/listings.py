"""The AttentionDrop paper's listings (appendix B) by what they compute, without TensorFlow.

They are here to be shown failing. Nothing else may use them.
Shapes: logits (B, H, N, N); kernel (w,).
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[np.float64]


def kernel_table(w: int = 5, sigma_max: float = 0.5, steps: int = 50) -> list[Array]:
    """The printed table of kernels over ``linspace(0, sigma_max, steps)``."""
    offsets = np.arange(w) - (w - 1) / 2
    table = []
    with np.errstate(divide="ignore", invalid="ignore"):
        for sigma in np.linspace(0.0, sigma_max, steps):
            kernel = np.exp(-0.5 * (offsets / sigma) ** 2)
            table.append(kernel / kernel.sum())
    return table


def blur_pytorch(logits: Tensor, kernel: Tensor, channels: int) -> Tensor:
    """`DepthwiseGaussianBlur.forward`, both PyTorch versions (they differ in the kernel's source).

    Raises:
        RuntimeError: For every `channels` once w > 1.
    """
    b, h, n, _ = logits.shape
    w = kernel.numel()
    bank = kernel.view(1, 1, 1, w)
    x = logits.reshape(b * h, 1, n, n)
    x = F.conv2d(x, bank.expand(channels, 1, 1, w), padding=(0, w // 2), groups=channels)
    x = F.conv2d(x, bank.expand(channels, 1, w, 1), padding=(w // 2, 0), groups=channels)
    return F.softmax(x.view(b, h, n, n), dim=-1)


def blur_pytorch_meant(logits: Array, kernel: Array) -> Array:
    """What the PyTorch listing means to do: blur rows, then columns; the blurred logits."""
    return _along(_along(logits, kernel, -1), kernel, -2)


def blur_rows(logits: Array, kernel: Array) -> Array:
    """What the text says: each row convolved; the blurred logits."""
    return _along(logits, kernel, -1)


def blur_tensorflow_first(kernel: Array) -> tuple[int, ...]:
    """The shape of the first TensorFlow listing's second filter; `conv1d` wants three axes."""
    column = kernel[:, None]
    return column[None, :, None].shape


def blur_tensorflow_second(logits: Array, kernel: Array) -> Array:
    """What the second TensorFlow listing feeds to soft-max: g_mid times the rows' convolution.

    Its second convolution runs over the channel axis, which was padded from one channel to w, with
    a filter of width 1: only the middle tap meets data.
    """
    w = kernel.size
    rows = _along(logits, kernel, -1).reshape(-1, logits.shape[-1], 1)
    channels = np.pad(rows, [(0, 0), (0, 0), (w // 2, w // 2)])
    mixed = channels @ kernel.reshape(w, 1)
    return mixed.reshape(logits.shape)


def kl_tensorflow(y_true: Tensor, y_pred: Tensor, epsilon: float = 1e-7) -> Tensor:
    """`tf.keras.losses.KLDivergence` by its arithmetic: both clipped to [epsilon, 1], summed."""
    y_true, y_pred = y_true.clamp(epsilon, 1), y_pred.clamp(epsilon, 1)
    return (y_true * (y_true / y_pred).log()).sum(-1).mean()


class HardAttentionMasking(nn.Module):
    """The hard-masking listing."""

    def __init__(self, p: float, k: int) -> None:
        super().__init__()
        self.p, self.k = p, k

    def forward(self, logits: Tensor) -> Tensor:
        """Soft-max of the masked logits, in training and in eval mode alike."""
        values, index = logits.topk(self.k, dim=-1)
        mask = (torch.rand_like(values) > self.p).float()
        full = torch.ones_like(logits)
        full.scatter_(-1, index, mask)
        return F.softmax(logits * full, dim=-1)


def _along(x: Array, kernel: Array, axis: int) -> Array:
    return np.apply_along_axis(lambda row: np.convolve(row, kernel, mode="same"), axis, x)
