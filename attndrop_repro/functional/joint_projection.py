"""Queries, keys and values that one linear layer made side by side, as timm's attentions have them.

Shapes: B batch, N tokens, H heads, D features of a head.
"""

from __future__ import annotations

from torch import Tensor

_VIEWS = ("UnbindBackward0", "PermuteBackward0", "ViewBackward0")


def joint_projection(q: Tensor, k: Tensor, v: Tensor) -> Tensor | None:
    """What queries, keys and values are views of, (B, N, 3, H, D), where one product made all.

    Their gradients can then be written where that product's backward reads them. Autograd would
    stack the three and reorder the stack, which takes a sixth of an attention's time. What lies
    between sees no gradient then: this is for views that nobody else holds.
    """
    qkv, node = q._base, q.grad_fn
    if qkv is None or node is None or qkv.grad_fn is None or not qkv.is_contiguous():
        return None
    # nothing but views may lie between: no function, and nobody who waits for a gradient there
    while node is not None and node != qkv.grad_fn:
        if node.name() not in _VIEWS:
            return None
        node = node.next_functions[0][0]
    for x in (q, k, v):
        if x._base is not qkv or x.grad_fn != q.grad_fn or x._backward_hooks or x.retains_grad:
            return None
    batch, heads, tokens, width = q.shape
    if qkv.numel() != 3 * q.numel():
        return None
    qkv = qkv.view(batch, tokens, 3, heads, width)
    same = all(
        x.storage_offset() == y.storage_offset() and x.shape == y.shape and x.stride() == y.stride()
        for x, y in zip((q, k, v), apart(qkv), strict=True)
    )
    return qkv if same else None


def apart(qkv: Tensor) -> tuple[Tensor, ...]:
    """Queries, keys and values (B, H, N, D) of (B, N, 3, H, D)."""
    return qkv.permute(2, 0, 3, 1, 4).unbind(0)
