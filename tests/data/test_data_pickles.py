"""The restricted reader: what the pickles hold comes out; nothing they could do happens."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.data.pickles import read_pickle


class Call:
    """Pickles as a call of any function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> Any:
        return self.function, self.arguments


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.uint8).reshape(2, 12),
        np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
        np.array([1.5, -2.0], dtype=">f4"),
        np.zeros((0, 3072), np.uint8),
        np.array([True, False]),
    ],
)
def test_arrays_of_every_protocol(array: np.ndarray, protocol: int) -> None:
    content = {b"data": array, b"labels": [3, 4], b"name": "x", b"none": None, b"pair": (1, 2.5)}
    found = read_pickle(pickle.dumps(content, protocol), "file")
    assert np.array_equal(found.pop(b"data"), array)
    assert found == {b"labels": [3, 4], b"name": "x", b"none": None, b"pair": (1, 2.5)}


def test_text_of_python_2_is_bytes() -> None:
    assert read_pickle(b"\x80\x02}q\x00U\x04dataq\x01K\x05s.", "file") == {b"data": 5}


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_no_code_runs(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "marker"
    attacks = [
        Call(os.system, f"touch {marker}"),
        Call(eval, f"open({str(marker)!r}, 'w')"),
        Call(Path.touch, marker),
        Call(np.fromfile, str(marker)),
        {b"data": [Call(os.mkdir, str(marker))]},
    ]
    for attack in attacks:
        with pytest.raises(AttndropError, match="refused") as caught:
            read_pickle(pickle.dumps(attack, protocol), "data_batch_1")
        assert "data_batch_1" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert not marker.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cnumpy\nndarray\n(K\x01tR.",  # calls a name that is only an argument
        b"cnumpy\ndtype\n(N}Vorder\nVx\nstb.",  # changes what stands for numpy.dtype
        b"\x80\x04\x8c\x05numpy\x8c\x15dtype.__init__.__globals__\x93.",  # looks behind it
        b"cnumpy\nndarray\n.",  # is a name and no value
        pickle.dumps(np.array(["text"]), 4),
        pickle.dumps(np.array([{}], dtype=object), 4),
        pickle.dumps({1, 2}, 4),
    ],
)
def test_anything_else_is_refused(content: bytes) -> None:
    with pytest.raises(AttndropError, match=r"refused|damaged"):
        read_pickle(content, "file")
    assert np.array_equal(read_pickle(pickle.dumps(np.arange(3), 4), "file"), [0, 1, 2])


@pytest.mark.parametrize("length", [0, 1, 10, 60])
def test_truncated(length: int) -> None:
    content = pickle.dumps({b"data": np.arange(100, dtype=np.uint8)}, 4)
    with pytest.raises(AttndropError, match="file is damaged"):
        read_pickle(content[:length], "file")


def test_a_shape_that_does_not_fit() -> None:
    content = pickle.dumps(np.arange(6, dtype=np.uint8).reshape(2, 3), 2)
    with pytest.raises(AttndropError, match="damaged"):
        read_pickle(content.replace(b"K\x02K\x03", b"K\x02K\x04"), "file")
