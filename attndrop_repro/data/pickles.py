"""Reading the pickles of the CIFAR archives without running what is in them.

A pickle is a program. This reader knows the few names that the archives need, and answers each with
a stand-in of its own that only keeps what it is given: not even numpy's functions are called. Every
other name, whatever it is, ends the reading.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from attndrop_repro.config.errors import AttndropError

_NUMBERS = re.compile(r"[iuf][1248]|b1")


class _Refused(Exception):
    """The pickle wants something that no data file needs."""


class _DType:
    """What a pickle says of an array's element type."""

    def __init__(self, code: object, *rest: object) -> None:
        self.code, self.order = _ascii(code), "="

    def __setstate__(self, state: Any) -> None:
        # (version, byte order, ...): the rest says how records and objects are made up
        self.order = _ascii(state[1]) if isinstance(state, tuple) and len(state) > 1 else "="

    def real(self) -> np.dtype[Any]:
        if not _NUMBERS.fullmatch(self.code) or self.order not in ("<", ">", "=", "|"):
            raise _Refused(f"an array of {self.code!r}")
        return np.dtype(self.order + self.code)


class _Array:
    """An array as numpy pickles it: first empty, then filled by its state."""

    def __init__(self, *ignored: object) -> None:
        self.value: Any = np.empty(0, np.uint8)

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise _Refused("an array of unknown form")
        _, shape, dtype, fortran, content = state
        self.value = _filled(content, dtype, shape, "F" if fortran else "C")


class _Name:
    """What a known name stands for: a call, if any, and nothing that a pickle could change."""

    __slots__ = ("_call",)
    _call: Callable[..., Any] | None

    def __init__(self, call: Callable[..., Any] | None) -> None:
        object.__setattr__(self, "_call", call)

    def __call__(self, *arguments: Any) -> Any:
        if self._call is None:
            raise _Refused("a call that no data file makes")
        return self._call(*arguments)

    def __setattr__(self, name: str, value: Any) -> None:
        raise _Refused("a change to this reader")

    def __setstate__(self, state: Any) -> None:
        raise _Refused("a change to this reader")


def _ascii(value: object) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)


def _from_buffer(content: Any, dtype: Any, shape: Any, order: Any = "C") -> _Array:
    array = _Array()
    array.value = _filled(content, dtype, shape, order)
    return array


def _filled(content: Any, dtype: Any, shape: Any, order: Any) -> Any:
    if isinstance(content, str):
        content = content.encode("latin1")
    if not isinstance(dtype, _DType) or not isinstance(content, bytes | bytearray):
        raise _Refused("an array of unknown form")
    if not isinstance(shape, tuple) or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise _Refused("an array of unknown shape")
    return np.frombuffer(bytes(content), dtype.real()).reshape(
        shape, order="F" if order == "F" else "C"
    )


def _encoded(text: object, encoding: object = "latin1") -> bytes:
    # how Python 3 writes bytes in the protocols of Python 2
    if not isinstance(text, str) or encoding != "latin1":
        raise _Refused("text in an unknown encoding")
    return text.encode("latin1")


def _no_bytes(*arguments: object) -> bytes:
    # and how it writes none at all
    if arguments:
        raise _Refused("bytes in an unknown form")
    return b""


_KNOWN: dict[tuple[str, str], _Name] = {
    ("numpy", "ndarray"): _Name(None),  # only ever an argument
    ("numpy", "dtype"): _Name(_DType),
    ("_codecs", "encode"): _Name(_encoded),
    ("__builtin__", "bytes"): _Name(_no_bytes),
    ("builtins", "bytes"): _Name(_no_bytes),
}
for _core in ("numpy.core", "numpy._core"):
    _KNOWN[f"{_core}.multiarray", "_reconstruct"] = _Name(_Array)
    _KNOWN[f"{_core}.numeric", "_frombuffer"] = _Name(_from_buffer)


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise _Refused(f"{module}.{name}") from None


def read_pickle(content: bytes, name: str) -> Any:
    """What a pickle of plain values and numeric arrays holds; no code of it is run.

    Text of Python 2 comes as bytes.

    Args:
        content: The pickle.
        name: The file, for messages.

    Raises:
        AttndropError: It is damaged, or wants anything but numbers, text, bytes, lists, tuples,
            dictionaries and numeric arrays.
    """
    try:
        return _plain(_Reader(io.BytesIO(content), encoding="bytes").load())
    except _Refused as refused:
        raise AttndropError(
            f"{name} is refused: it asks for {refused}, which no data file needs; get it from its "
            "publisher"
        ) from None
    except Exception as error:  # a damaged program can fail in any way
        reason = " ".join(str(error).split()) or type(error).__name__
        raise AttndropError(f"{name} is damaged: {reason}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, _Array):
        return value.value
    if isinstance(value, dict):
        return {_plain(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, tuple):
        return tuple(_plain(inner) for inner in value)
    if value is None or isinstance(value, bool | int | float | str | bytes | bytearray):
        return value
    raise _Refused(f"a {type(value).__name__}")
