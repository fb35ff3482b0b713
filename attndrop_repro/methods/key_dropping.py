"""What DropKey and DropAttention share: from draws to a call with fewer keys."""

from __future__ import annotations

from torch import Tensor

from attndrop_repro.functional.drawn_by_rows import Draw, DroppedKeys
from attndrop_repro.functional.relaxed_bernoulli import relaxed_log_keep
from attndrop_repro.methods.call import AttentionCall


def drop_keys(
    call: AttentionCall, draw: Draw, p: float | Tensor, free: Tensor | None, *, relaxed: bool
) -> AttentionCall:
    """The call without the keys that the draws drop; every row keeps one at least.

    Args:
        call: An attention.
        draw: Makes uniform draws for all rows or some, see `drawn_by_rows.Draw`.
        p: Probability of dropping.
        free: Elements that may be dropped, see `TokenScope.open_to_change`.
        relaxed: Lower logits by a mask that is differentiable in p, for a p that is learned.
    """
    if relaxed:
        u = draw(call.shape, device=call.q.device)
        log_keep = relaxed_log_keep(u, p).to(call.q.dtype)
        if free is not None:
            log_keep = log_keep.masked_fill(~free, 0.0)
        bias = log_keep if call.bias is None else call.bias + log_keep
        # under torch.func the fused form has no gradient for a bias that outer code may want
        return call.replace(bias=bias).then_on_weights(_as_they_are)
    return call.settled().replace(dropped=DroppedKeys(draw, p, free))


def _as_they_are(weights: Tensor) -> Tensor:
    return weights
