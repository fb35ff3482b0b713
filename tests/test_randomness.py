"""The streams: the same everywhere and for ever, independent of each other, and tidy."""

import contextlib
import random

import numpy as np
import pytest
import torch

from attndrop_repro import randomness
from attndrop_repro.randomness import (
    derive,
    light_stream,
    numpy_stream,
    regulariser_state,
    restore_regulariser,
    seed_regulariser,
    stream,
    torch_stream,
)


def test_fixed_for_ever() -> None:
    # sha256("0\x1fstr:order\x1fint:3")[:8], little-endian, halved
    assert derive(0, "order", 3) == 6250026278392756608


def test_keys_never_meet() -> None:
    keys = [
        (0, "a", 1),
        (0, "a", "1"),
        (0, "a1"),
        (0, "a", 1, 1),
        (0, "a", 11),
        (1, "a", 1),
        (0, 1, "a"),
    ]
    assert len({derive(*key) for key in keys}) == len(keys)
    assert all(0 <= derive(*key) < 2**63 for key in keys)


def test_streams_are_functions_of_their_key() -> None:
    assert np.array_equal(numpy_stream(3, "x", 1).random(4), numpy_stream(3, "x", 1).random(4))
    assert not np.array_equal(numpy_stream(3, "x", 1).random(4), numpy_stream(3, "x", 2).random(4))
    one, two = torch_stream(3, "x"), torch_stream(3, "x")
    assert torch.equal(torch.rand(4, generator=one), torch.rand(4, generator=two))


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), float(torch.rand(()))


@pytest.mark.parametrize("lend", [stream, light_stream])
def test_lent_streams_leave_no_trace(lend) -> None:
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    expected = draw()
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    with lend(0, "x"):
        inside = draw()
    with contextlib.suppress(RuntimeError), lend(0, "x"):
        assert draw() == inside
        raise RuntimeError
    assert draw() == expected
    with lend(1, "x"):
        assert draw() != inside


def test_the_regulariser_goes_on_where_it_was() -> None:
    seed_regulariser(5)
    torch.rand(7)
    state = regulariser_state()
    expected = torch.rand(5)
    torch.rand(100)
    restore_regulariser(state)
    assert torch.equal(torch.rand(5), expected)


def test_ranks_draw_apart_and_the_first_as_one_process_would() -> None:
    seed_regulariser(5)
    alone = torch.rand(5)
    seed_regulariser(5, rank=0)
    assert torch.equal(torch.rand(5), alone)
    seed_regulariser(5, rank=1)
    assert not torch.equal(torch.rand(5), alone)


def test_importing_it_does_not_import_torch() -> None:
    import subprocess
    import sys

    code = "import sys, attndrop_repro.randomness; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert randomness.__doc__
