"""A call in a process of its own, for numbers that an earlier call would spoil.

One pipe and nothing else: a pool's queues would leave semaphores behind whenever the program is
stopped, and would wait for the call to end first.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, TypeVar

from attndrop_repro.config.errors import AttndropError
from attndrop_repro.experiments.worker import follow_parent
from attndrop_repro.training.guards import out_of_memory

P = ParamSpec("P")
T = TypeVar("T")


def in_own_process(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a call in a fresh process, which ends when this one is interrupted.

    Args:
        call: A function of a module; it, its arguments and its result must pickle.
        args: Its arguments.
        kwargs: Likewise.

    Raises:
        AttndropError: It raised one; it found no memory; or its process was killed.
        RuntimeError: It raised another error, which the message names.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_perform, args=(theirs, call, args, kwargs), daemon=True)
    try:
        process.start()
        theirs.close()
        try:
            failed, found = ours.recv()
        except EOFError:
            process.join()
            raise AttndropError(
                f"its process was killed (exit status {process.exitcode}): most likely it needs "
                "more memory than there is"
            ) from None
    finally:
        if process.pid is not None:
            process.kill()  # it has answered, or nobody listens any more
            process.join()
        ours.close()
    if failed:
        raise found
    result: T = found
    return result


def _perform(
    pipe: Connection, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all: the parent decides
    threading.Thread(target=follow_parent, daemon=True).start()
    try:
        answer: tuple[bool, Any] = False, call(*args, **kwargs)
    except AttndropError as error:
        answer = True, AttndropError(str(error))
    except Exception as error:
        if out_of_memory(error):
            answer = True, AttndropError("it needs more memory than there is")
        else:
            answer = True, RuntimeError(f"{type(error).__name__}: {error}")
    pipe.send(answer)
