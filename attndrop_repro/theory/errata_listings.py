"""Errata of the AttentionDrop paper's listings: E1 to E6, E14."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from attndrop_repro import randomness
from attndrop_repro.theory import listings
from attndrop_repro.theory.erratum import Finding, erratum

Array = NDArray[np.float64]


def gaussian(w: int, sigma: float) -> Array:
    """The normalised kernel of width w; the identity at sigma = 0 (A10)."""
    offsets = np.arange(w) - (w - 1) / 2
    kernel: Array
    if sigma == 0:
        kernel = np.where(offsets == 0, 1.0, 0.0)
    else:
        kernel = np.exp(-0.5 * (offsets / sigma) ** 2)
    kernel /= kernel.sum()
    return kernel


def softmax(x: Array) -> Array:
    """Along the last axis."""
    e: Array = np.exp(x - x.max(-1, keepdims=True))
    e /= e.sum(-1, keepdims=True)
    return e


def _logits(*shape: int) -> Array:
    return randomness.numpy_stream(0, "errata").standard_normal(shape)


@erratum(
    "E1",
    "The first kernel of the table is NaN",
    "appendix B, kernel precomputation",
    "sigma = 0 is the identity kernel, the limit (A10)",
)
def e1() -> Finding:
    """linspace(0, ...) starts with 0/0; the text's own grid does not contain 0."""
    bad = sum(bool(np.isnan(kernel).any()) for kernel in listings.kernel_table())
    grid = [gaussian(5, sigma) for sigma in (0.1, 0.2, 0.3, 0.4, 0.5)]
    good = all(np.isfinite(kernel).all() for kernel in grid)
    return Finding(
        f"of the 50 kernels over linspace(0, 0.5, 50), {bad} is NaN: the one that is drawn for "
        "2 % of the batches",
        "the text's grid 0.1, 0.2, ..., 0.5 has no zero, and all its kernels are finite",
        bad == 1 and bool(np.isnan(listings.kernel_table()[0]).all()) and good,
        {"nan_kernels": bad},
    )


@erratum(
    "E2",
    "The blur listings do not run, or compute something else",
    "appendix B, DepthwiseGaussianBlur, PyTorch and TensorFlow",
    "the blur follows the text (A2 `rows`); `rows_and_columns` is what the PyTorch code means",
)
def e2() -> Finding:
    """The second kernel is expanded along the wrong axis; TensorFlow's has width 1."""
    kernel = gaussian(5, 0.5)
    logits = _logits(2, 4, 7, 7)
    raised = 0
    for channels in range(1, 9):
        try:
            listings.blur_pytorch(torch.tensor(logits), torch.tensor(kernel), channels)
        except RuntimeError:
            raised += 1
    axes = len(listings.blur_tensorflow_first(kernel))
    second = listings.blur_tensorflow_second(logits, kernel)
    gap = float(np.abs(second - kernel[2] * listings.blur_rows(logits, kernel)).max())
    return Finding(
        f"PyTorch: raises for {raised} of channels 1 to 8; TensorFlow version 1: a filter of "
        f"{axes} axes where conv1d takes 3; version 2: g_mid (G * L), to {gap:.0e}",
        f"a blur of the rows is G * L; version 2 also scales all logits by g_mid = {kernel[2]:.3f}",
        raised == 8 and axes == 4 and gap < 1e-12,
        {"pytorch_raises": raised, "tensorflow_1_axes": axes, "tensorflow_2_gap": gap},
    )


@erratum(
    "E3",
    "Text, PyTorch and TensorFlow are three functions",
    "section 3.2 and appendix B",
    "A2: `rows` by default, `rows_and_columns` as a setting",
)
def e3() -> Finding:
    """Largest differences between the three attention maps of one random input."""
    kernel, logits = gaussian(5, 0.5), _logits(2, 4, 7, 7)
    rows = softmax(listings.blur_rows(logits, kernel))
    both = softmax(listings.blur_pytorch_meant(logits, kernel))
    scaled = softmax(listings.blur_tensorflow_second(logits, kernel))
    a, b, c = (
        float(np.abs(x - y).max()) for x, y in ((rows, both), (rows, scaled), (both, scaled))
    )
    return Finding(
        "one method, given as a text and two listings",
        f"attention weights differ by up to {a:.3f} (text, PyTorch), {b:.3f} (text, TensorFlow 2), "
        f"{c:.3f} (PyTorch, TensorFlow 2)",
        min(a, b, c) > 1e-3,
        {"text_pytorch": a, "text_tensorflow": b, "pytorch_tensorflow": c},
    )


def _two_distributions() -> tuple[torch.Tensor, torch.Tensor]:
    z = torch.tensor(_logits(2, 6, 5))
    return z[0].log_softmax(-1), z[1].log_softmax(-1)


@erratum(
    "E4",
    "The code computes the other KL",
    "section 3.3 and appendix B, consistency in PyTorch",
    "A3: `equation` by default; `appendix` and `symmetric` are settings",
)
def e4() -> Finding:
    """`kl_div(log p1, p2)` is KL(p2 || p1)."""
    log1, log2 = _two_distributions()
    code = float(torch.nn.functional.kl_div(log1, log2.exp(), reduction="batchmean"))
    forward = float((log1.exp() * (log1 - log2)).sum(-1).mean())
    backward = float((log2.exp() * (log2 - log1)).sum(-1).mean())
    return Finding(
        f"KL(softmax Z1 || softmax Z2) = {forward:.4f} on a random pair",
        f"the code gives {code:.4f}, which is KL(softmax Z2 || softmax Z1) = {backward:.4f}",
        abs(code - backward) < 1e-12 and abs(code - forward) > 1e-3,
        {"code": code, "kl_1_2": forward, "kl_2_1": backward},
    )


@erratum(
    "E5",
    "TensorFlow's consistency loss is zero",
    "appendix B, consistency in TensorFlow",
    "KL is computed from log-softmax; a test holds its gradient",
)
def e5() -> Finding:
    """`KLDivergence` wants probabilities and clips the log-probabilities it gets to 1e-7."""
    log1, log2 = _two_distributions()
    given = log1.clone().requires_grad_(True)
    value = listings.kl_tensorflow(given, log2.exp())
    (gradient,) = torch.autograd.grad(value, given)
    true = float((log1.exp() * (log1 - log2)).sum(-1).mean())
    printed, largest = float(value.detach()), float(gradient.abs().max())
    return Finding(
        f"lambda times a KL; what the listing computes is {printed:.1e}, with a gradient of "
        f"{largest:.0e} to its first argument",
        f"the KL of that pair is {true:.2f}",
        abs(printed) < 1e-4 and largest == 0 and true > 0.1,
        {"listing": printed, "gradient": largest, "kl": true},
    )


@erratum(
    "E6",
    "A zeroed logit is not an excluded one",
    "section 3.1, 'zeroing out the highest attention logits'",
    "A1: `zero` as the equation has it, `drop` to exclude; key biases matter to `zero`",
)
def e6() -> Finding:
    """Masking by 0 is not shift-invariant, and lifts a negative top logit."""
    weights = {}
    for shift in (0.0, 5.0, -5.0):
        row = np.array([2.0, 1.0, 0.0]) + shift
        weights[shift] = float(softmax(np.where([True, False, False], 0.0, row))[0])
    negative = np.array([-1.0, -2.0, -3.0])
    before = float(softmax(negative)[0])
    after = float(softmax(negative * np.array([0.0, 1.0, 1.0]))[0])
    return Finding(
        "masking the top logit removes its influence",
        f"the masked entry of [2, 1, 0] + c keeps weight {weights[0.0]:.3f}, {weights[5.0]:.4f}, "
        f"{weights[-5.0]:.3f} for c = 0, 5, -5, where soft-max itself ignores c; the masked top of "
        f"[-1, -2, -3] rises from {before:.3f} to {after:.3f}",
        after > before and weights[-5.0] > 0.9 and weights[0.0] > 0.2,
        {"c_0": weights[0.0], "c_5": weights[5.0], "c_-5": weights[-5.0], "negative": after},
    )


@erratum(
    "E14",
    "The listings perturb in eval mode and lose the padding mask",
    "appendix B, hard masking",
    "eval mode is the plain model bit for bit; forbidden keys are never selected",
)
def e14() -> Finding:
    """No train/eval switch; half precision raises; -inf * 0 is NaN; a finite mask becomes 0."""
    layer = listings.HardAttentionMasking(p=0.5, k=3).eval()
    logits = torch.tensor(_logits(1, 2, 7, 7), dtype=torch.float32)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        differs = not torch.equal(layer(logits), layer(logits))
        raised = 0
        for dtype in (torch.float16, torch.bfloat16):
            try:
                layer(logits.to(dtype))
            except RuntimeError:
                raised += 1
        always = listings.HardAttentionMasking(p=1.0, k=5)
        padded = torch.tensor([[[[-1.0, -2.0, -3.0, float("-inf"), float("-inf")]]]])
        nan = bool(always(padded).isnan().any())
        leaked = float(always(padded.clamp(min=-1e4))[..., 3:].sum())
    return Finding(
        f"two eval forwards differ: {differs}; raises in {raised} of fp16, bf16; a -inf mask gives "
        f"NaN: {nan}; with a -1e4 mask two padded keys get {leaked:.2f} of the weight",
        "in eval mode nothing is drawn, and padding has weight 0",
        differs and raised == 2 and nan and leaked > 0.1,
        {"raises_in_half": raised, "weight_on_padding": leaked},
    )
