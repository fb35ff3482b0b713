"""A call in its own process: its result, its errors, and its end when nobody waits any more."""

import math
import multiprocessing
import os
import signal
import time

import pytest
import torch

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.experiments.own_process import in_own_process
from attndrop_repro.methods import parse


def test_the_result_comes_back_from_another_process() -> None:
    assert in_own_process(math.hypot, 3.0, 4.0) == 5.0
    assert in_own_process(os.getpid) != os.getpid()


def test_what_users_can_act_on_stays_one_line() -> None:
    with pytest.raises(AttndropError, match="unknown method 'dropkye'"):
        in_own_process(parse, "dropkye")
    with pytest.raises(AttndropError, match="needs more memory than there is"):
        in_own_process(torch.zeros, 2**50)
    with pytest.raises(AttndropError, match=r"killed \(exit status -9\)"):
        in_own_process(signal.raise_signal, signal.SIGKILL)


def test_a_fault_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"^ValueError: "):
        in_own_process(math.sqrt, -1.0)


def test_it_ends_with_the_wait_for_it() -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            in_own_process(time.sleep, 600.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert multiprocessing.active_children() == []
