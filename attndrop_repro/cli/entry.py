"""From arguments to an exit status: every error becomes one line that says what to do.

Exit statuses: 0 done, 1 failed, 2 wrong usage, 130 interrupted by Ctrl-C, 143 by SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import typer

from attndrop_repro.cli.session import Session
from attndrop_repro.config.errors import AttndropError, nearest

INTERRUPTED, TERMINATED = 130, 143


class Terminated(BaseException):
    """SIGTERM arrived; unwinds like KeyboardInterrupt, so that whoever cleans up does."""


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: The arguments after the program's name; None: those of this process.

    Returns:
        The exit status.
    """
    from attndrop_repro.cli.app import app

    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    session = Session()
    try:
        with _sigterm_raises():
            code = app(
                args=arguments,
                prog_name="attndrop",
                standalone_mode=False,
                obj=session,
            )
            sys.stdout.flush()
        if code == INTERRUPTED:  # typer makes this of KeyboardInterrupt
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        _silence()
        return 0  # who read our output had enough of it
    except Terminated:
        return _stopped("terminated", TERMINATED, session)
    except KeyboardInterrupt:
        return _stopped("interrupted", INTERRUPTED, session)
    except Exception as error:
        code = getattr(error, "exit_code", 1)
        if code in (INTERRUPTED, TERMINATED):
            session.error(str(error), kind="stopped")
        elif session.debug:
            traceback.print_exc()
        else:
            for line in _lines(error):
                session.error(line)
        return int(code)


def _stopped(how: str, code: int, session: Session) -> int:
    hint = "; run the same command again to go on" if session.goes_on else ""
    print(f"attndrop: {how}{hint}", file=sys.stderr)
    return code


def _silence() -> None:
    """Points stdout at nothing, so that Python's own flush at exit does not complain either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _lines(error: Exception) -> list[str]:
    """One line for an error; one for each where several things are wrong with one request."""
    if isinstance(error, AttndropError):
        return [line for line in str(error).splitlines() if line.strip()]
    if isinstance(error, typer.TyperException):
        text = _usage(error)
    elif isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        text = f"{error.strerror}{where}"
    elif isinstance(error, MemoryError):
        text = "out of memory: close other programs, or use fewer jobs or a smaller batch"
    else:
        kind = type(error).__name__
        text = f"{kind}: {error}; this looks like a fault of attndrop: --debug shows where"
    return [" ".join(text.split())]


def _usage(error: typer.TyperException) -> str:
    """What typer says, with the nearest names and where to read more."""
    found = getattr(error.__cause__, "errors", None)
    if found is not None and hasattr(error, "message"):  # pydantic's, of the option's value
        from attndrop_repro.config.words import complaint

        error.message = complaint(found()[0])
    text = error.format_message().rstrip(".").replace("Value error, ", "")
    context = getattr(error, "ctx", None)
    option = getattr(error, "option_name", None)
    if context is not None and option is not None and hasattr(error, "possibilities"):
        known = _options(context)
        if context.parent is not None and option in _options(context.find_root()):
            hint = f"; it goes before the command: {context.find_root().info_name} {option} ..."
        else:
            hint = nearest(option, known)
        text = f"{context.command_path} has no option {option}{hint}"
    if context is not None:
        text += f" (see {context.command_path} --help)"
    return text


def _options(context: typer.Context) -> list[str]:
    return [name for param in context.command.get_params(context) for name in param.opts]
