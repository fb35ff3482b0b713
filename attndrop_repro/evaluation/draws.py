"""Random numbers that belong to an example, whatever is computed together with it.

Under `torch.vmap` an operation draws for all examples at once, so that what an example gets
depends on how many there are. Here the c-th draw of a forward has a stream of its own,
`(seed, key, c)`, and example after example takes the next numbers of it: the same ones for any
chunk size, and in a plain loop.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.evaluation.plain_attention import by_parts
from attndrop_repro.randomness import Key, numpy_stream


class ExampleDraws(TorchFunctionMode):
    """While active, torch's random functions answer with an example's own numbers.

    Answered are `rand`, `rand_like`, `randn`, `randn_like`, `bernoulli`, `F.dropout` and the
    dropout of fused attention; `check` tells when something else was drawn.

    Args:
        seed: The run's seed.
        key: Name of the stream.
    """

    def __init__(self, seed: int, *key: Key) -> None:
        super().__init__()
        self.seed, self.key = seed, key
        self._streams: list[np.random.Generator] = []
        self._drawn: list[int] = []  # how many owners have drawn from each stream
        self._last: list[NDArray[Any]] = []  # what the last of them got
        self._call = 0
        self._owners = range(0)
        self._index: Tensor | None = None
        self._state = torch.get_rng_state()

    def begin(self, owners: range) -> None:
        """Before each forward: whose numbers come next; blocks must follow each other.

        Args:
            owners: Numbers of the examples (or of groups of them that share their draws).
        """
        self._owners, self._call = owners, 0
        self._state = torch.get_rng_state()

    def choose(self, index: Tensor) -> None:
        """At the start of each forward: which of the owners it is for, a 0-dim tensor."""
        self._index = index

    def check(self) -> None:
        """After a forward.

        Raises:
            AttndropError: Something was drawn that belongs to no example.
        """
        self._index = None
        if not torch.equal(self._state, torch.get_rng_state()):
            raise AttndropError(
                "the method draws random numbers by an operation that cannot be given an "
                "example's own (use torch.rand, torch.randn, torch.bernoulli or F.dropout)"
            )

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch for every function of its API."""
        kwargs = kwargs or {}
        answer = _ANSWERS.get(func)
        if answer is None or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        return answer(self, *args, **kwargs)

    def draw(
        self, shape: tuple[int, ...], like: dict[str, Any], *, normal: bool = False,
        least: float | None = None,
    ) -> Tensor:  # fmt: skip
        """The chosen owner's next numbers, U[0, 1) or N(0, 1).

        Args:
            shape: For one owner.
            like: "dtype" and "device", where they are not torch's defaults.
            normal: Which distribution.
            least: Instead of the numbers, 1 where they are at least this, else 0.
        """
        call, self._call = self._call, self._call + 1
        if call == len(self._streams):
            self._streams.append(numpy_stream(self.seed, *self.key, call))
            self._drawn.append(0)
            self._last.append(np.empty((0, *shape), np.float32))
        last, drawn = self._last[call], self._drawn[call]
        if last.shape[1:] != shape:
            raise AttndropError("the method draws other shapes for one example than for the next")
        # the first owner of this block may be the last of the one before
        kept = last[len(last) - max(drawn - self._owners.start, 0) :]
        new = self._owners.stop - max(self._owners.start, drawn)
        dtype = like.get("dtype") or torch.get_default_dtype()
        kind: Any = np.float64 if dtype == torch.float64 else np.float32
        stream = self._streams[call]
        fresh = (stream.standard_normal if normal else stream.random)((new, *shape), kind)
        table = np.concatenate([kept, fresh]) if len(kept) else fresh
        self._last[call], self._drawn[call] = table[-1:].copy(), self._owners.stop
        assert self._index is not None, "choose() comes before the first draw"
        rows = torch.from_numpy(table).to(like.get("device") or self._index.device, dtype)
        if least is not None:
            rows.ge_(least)
        # under vmap an embedding copies whole rows; index_select would gather number by number
        return F.embedding(self._index, rows.view(len(rows), math.prod(shape))).view(shape)

    def dropout(self, x: Tensor, p: float) -> Tensor:
        """Inverted dropout of elements, as torch does it: by a product."""
        if p >= 1:
            return torch.zeros_like(x)
        keep = self.draw(tuple(x.shape), {"device": x.device}, least=p)
        return x * keep.to(x.dtype).div_(1 - p)


def _shape(size: tuple[Any, ...]) -> tuple[int, ...]:
    given = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    return tuple(int(n) for n in given)


def _rand(draws: ExampleDraws, *size: Any, **like: Any) -> Tensor:
    return draws.draw(_shape(like.pop("size", None) or size), like)


def _randn(draws: ExampleDraws, *size: Any, **like: Any) -> Tensor:
    return draws.draw(_shape(like.pop("size", None) or size), like, normal=True)


def _like(x: Tensor, changed: dict[str, Any]) -> dict[str, Any]:
    return {"dtype": x.dtype, "device": x.device} | {k: v for k, v in changed.items() if v}


def _rand_like(draws: ExampleDraws, x: Tensor, **like: Any) -> Tensor:
    return draws.draw(tuple(x.shape), _like(x, like))


def _randn_like(draws: ExampleDraws, x: Tensor, **like: Any) -> Tensor:
    return draws.draw(tuple(x.shape), _like(x, like), normal=True)


def _bernoulli(draws: ExampleDraws, p: Tensor, **_: Any) -> Tensor:
    return (draws.draw(tuple(p.shape), _like(p, {})) < p).to(p.dtype)


def _dropout(
    draws: ExampleDraws, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    return draws.dropout(x, p) if training and p > 0 else x


def _attention(draws: ExampleDraws, *args: Any, **kwargs: Any) -> Tensor:
    """Fused attention by its parts: vmap has no rule for the fused form, and it draws inside."""
    return by_parts(args, kwargs, draws.dropout)


_ANSWERS: dict[Any, Any] = {
    torch.rand: _rand,
    torch.randn: _randn,
    torch.rand_like: _rand_like,
    torch.randn_like: _randn_like,
    torch.bernoulli: _bernoulli,
    torch.Tensor.bernoulli: _bernoulli,
    F.dropout: _dropout,
    F.scaled_dot_product_attention: _attention,
}
