"""The blur: oracles, the identity with blurred logits, edges, tiny sigmas, gradients."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from attndrop_repro.functional.blur import blur, gaussian_kernel

ORACLES = json.loads((Path(__file__).parents[1] / "oracles.json").read_text())


def tensor(value: object) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


Q, K, V = (tensor(ORACLES["qkv"][name]) for name in "qkv")
SCALE = ORACLES["qkv"]["scale"]


def logits(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-2, -1) * SCALE


def convolved(rows: Tensor, kernel: Tensor) -> Tensor:
    """The definition: each row convolved, zero padding w // 2."""
    w = kernel.shape[0]
    flat = rows.reshape(-1, 1, rows.shape[-1])
    return torch.nn.functional.conv1d(flat, kernel.view(1, 1, w), padding=w // 2).view(rows.shape)


@pytest.mark.parametrize("case", ORACLES["blur"], ids=lambda case: f"w{case['w']}-{case['sigma']}")
def test_oracle(case: dict) -> None:
    kernel = gaussian_kernel(tensor(case["sigma"]), case["w"])
    torch.testing.assert_close(kernel, tensor(case["kernel"]), rtol=0, atol=1e-15)
    keys, queries = blur(K, kernel), blur(Q, kernel)
    for name, q in (("rows", Q), ("rows_and_columns", queries)):
        got = logits(q, keys)
        expected = case[name]
        torch.testing.assert_close(got, tensor(expected["logits"]), rtol=0, atol=1e-13)
        output = got.softmax(-1) @ V
        torch.testing.assert_close(output, tensor(expected["output"]), rtol=0, atol=1e-13)


def test_oracle_renormalised() -> None:
    case = ORACLES["blur_renormalised"]
    kernel = gaussian_kernel(tensor(case["sigma"]), case["w"])
    got = logits(Q, blur(K, kernel, edges="renormalised"))
    torch.testing.assert_close(got, tensor(case["logits"]), rtol=0, atol=1e-13)
    torch.testing.assert_close(got.softmax(-1) @ V, tensor(case["output"]), rtol=0, atol=1e-13)


def test_oracle_padded() -> None:
    case = ORACLES["blur_padded"]
    kernel = gaussian_kernel(tensor(case["sigma"]), case["w"])
    padding = torch.tensor(case["key_padding"])
    keys = blur(K.masked_fill(padding[:, None, :, None], 0.0), kernel)
    masked = logits(Q, keys).masked_fill(padding[:, None, None, :], -torch.inf)
    torch.testing.assert_close(masked.softmax(-1), tensor(case["weights"]), rtol=0, atol=1e-13)
    torch.testing.assert_close(masked.softmax(-1) @ V, tensor(case["output"]), rtol=0, atol=1e-13)


def test_oracle_bias() -> None:
    """An additive bias, blurred over the keys as the logits are, or added to blurred logits."""
    case = ORACLES["blur_bias"]
    kernel = gaussian_kernel(tensor(case["sigma"]), case["w"])
    got, bias = logits(Q, blur(K, kernel)), tensor(case["bias"])
    together = got + blur(bias.transpose(-2, -1), kernel).transpose(-2, -1)
    for found, name in ((together, "blurred_with_logits"), (got + bias, "left_unblurred")):
        torch.testing.assert_close(found.softmax(-1) @ V, tensor(case[name]), rtol=0, atol=1e-13)


def test_oracle_without_blur() -> None:
    got = logits(Q, K).softmax(-1) @ V
    expected = tensor(ORACLES["qkv"]["plain_output"])
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-13)
    still = logits(Q, blur(K, gaussian_kernel(tensor(0.0), 5))).softmax(-1) @ V
    torch.testing.assert_close(still, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize(("n", "w"), [(1, 5), (2, 9), (7, 1), (7, 5), (7, 31)])
def test_blurred_keys_are_blurred_logits(n: int, w: int) -> None:
    q, k = Q[:, :, :n].clone().requires_grad_(), K[:, :, :n].clone().requires_grad_()
    kernel = gaussian_kernel(tensor(1.7), w)
    weight = torch.randn(2, 2, n, n, dtype=torch.float64)
    for columns in (False, True):
        fast = logits(blur(q, kernel) if columns else q, blur(k, kernel))
        slow = convolved(logits(q, k), kernel)
        if columns:
            slow = convolved(slow.transpose(-2, -1), kernel).transpose(-2, -1)
        torch.testing.assert_close(fast, slow, rtol=0, atol=1e-14)
        for a, b in zip(
            torch.autograd.grad((fast * weight).sum(), (q, k)),
            torch.autograd.grad((slow * weight).sum(), (q, k)),
            strict=True,
        ):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("sigma", [0.0, 1e-45, 1e-30, 1e-10, 1e-3, 1.1e-3, 0.02])
def test_small_sigmas_are_the_identity(sigma: float, dtype: torch.dtype) -> None:
    value = torch.tensor(sigma, dtype=torch.promote_types(dtype, torch.float32), requires_grad=True)
    kernel = gaussian_kernel(value, 5)
    assert kernel.tolist() == [0, 0, 1, 0, 0]
    kernel[2].backward()
    assert value.grad is not None
    assert value.grad.item() == 0
    x = K.to(dtype)
    assert torch.equal(blur(x, kernel.detach()), x)
    assert torch.equal(blur(x, kernel), x)


def test_huge_sigma_is_the_mean() -> None:
    kernel = gaussian_kernel(tensor(1e6), 5)
    torch.testing.assert_close(kernel, torch.full((5,), 0.2, dtype=torch.float64))


def test_kernels_of_several_sigmas() -> None:
    sigmas = tensor([[0.3], [1.2]])
    together = gaussian_kernel(sigmas, 5)
    assert together.shape == (2, 1, 5)
    x = blur(K, together)
    for sample in range(2):
        alone = blur(K[sample], gaussian_kernel(sigmas[sample, 0], 5))
        torch.testing.assert_close(x[sample], alone, rtol=0, atol=1e-15)


@pytest.mark.parametrize("n", [1, 2, 6])
@pytest.mark.parametrize("leading", [(), (2, 1), (3,), (2, 3)])
def test_quick_form_equals_the_general_one(n: int, leading: tuple[int, ...]) -> None:
    x = torch.randn(2, 3, n, 4, dtype=torch.float64, requires_grad=True)
    kernel = gaussian_kernel(torch.rand(leading, dtype=torch.float64) * 2, 5)
    weight = torch.randn(2, 3, n, 4, dtype=torch.float64)
    everywhere = torch.ones(5, n, dtype=torch.bool)
    results = []
    for linked in (None, everywhere):
        y = blur(x, kernel, linked=linked)
        results.append((y, *torch.autograd.grad((y * weight).sum(), x)))
    for quick, general in zip(*results, strict=True):
        torch.testing.assert_close(quick, general, rtol=0, atol=1e-14)


def test_quick_form_broadcasts() -> None:
    # a bias shared by the batch, a sigma for each sample
    x = torch.randn(1, 3, 6, 4, dtype=torch.float64, requires_grad=True)
    kernel = gaussian_kernel(tensor([[0.5], [1.0]]), 3)
    assert torch.autograd.gradcheck(lambda x: blur(x, kernel), x)


@pytest.mark.parametrize("edges", ["zero", "renormalised"])
def test_gradients(edges: str) -> None:
    x = torch.randn(1, 2, 5, 3, dtype=torch.float64, requires_grad=True)
    sigma = tensor(0.8).requires_grad_()
    fixed = gaussian_kernel(sigma.detach(), 3)
    assert torch.autograd.gradcheck(lambda x: blur(x, fixed, edges=edges), x)
    assert torch.autograd.gradgradcheck(lambda x: blur(x, fixed, edges=edges).square(), x)
    assert torch.autograd.gradcheck(
        lambda x, s: blur(x, gaussian_kernel(s, 3), edges=edges, left_out=1), (x, sigma)
    )


def test_renormalised_edges_keep_a_constant() -> None:
    kernel = gaussian_kernel(tensor(1.0), 5)
    ones = torch.ones(1, 1, 6, 1, dtype=torch.float64)
    for left_out in (0, 1, 2):
        torch.testing.assert_close(
            blur(ones, kernel, edges="renormalised", left_out=left_out), ones
        )
    assert blur(ones, kernel)[0, 0, 0, 0] < 1


def test_tokens_left_out() -> None:
    kernel = gaussian_kernel(tensor(1.0), 5)
    got = blur(K, kernel, left_out=2)
    assert torch.equal(got[:, :, :2], K[:, :, :2])
    torch.testing.assert_close(got[:, :, 2:], blur(K[:, :, 2:], kernel), rtol=0, atol=1e-15)


def test_vmap_and_compile() -> None:
    kernels = gaussian_kernel(tensor([0.4, 0.9]), 5)
    together = torch.func.vmap(blur)(K, kernels)
    for sample in range(2):
        torch.testing.assert_close(together[sample], blur(K[sample], kernels[sample]))
    x = K.clone().requires_grad_()
    compiled = torch.compile(blur, backend="aot_eager", fullgraph=True)
    y = compiled(x, kernels[0])
    assert torch.equal(y, blur(x, kernels[0]))
    y.sum().backward()
    assert x.grad is not None


def test_bfloat16_is_nearer_than_blurring_rounded_logits() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 2, 64, 32, generator=generator, dtype=torch.float64) for _ in "qk")
    kernel = gaussian_kernel(tensor(0.5), 5)
    exact = convolved(logits(q, k), kernel)
    half = (q.bfloat16(), k.bfloat16())
    keys = logits(half[0], blur(half[1], kernel)).double()
    rounded = convolved(logits(*half).double(), kernel.bfloat16().double()).bfloat16().double()
    assert bool(keys.isfinite().all())
    assert (keys - exact).abs().mean() < (rounded - exact).abs().mean()
