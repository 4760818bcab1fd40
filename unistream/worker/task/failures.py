"""An exception as it is reported to the master."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from unistream.base.errors import (
    ConfigError,
    CorruptSnapshot,
    Fenced,
    MissingCode,
    PartitionLost,
    SuppressRestarts,
    UserCodeError,
)
from unistream.base.ids import PartitionId
from unistream.base.user_files import users_part
from unistream.model.elements import Batch
from unistream.model.messages import TaskFailure

CAUSED: Final = "\nThe above exception was the direct cause of the following exception:\n\n"
TRACEBACK_CHARS_MAX: Final = 32_768  # the end of a traceback says most; a message stays far below a frame
MESSAGE_CHARS_MAX: Final = 4_096
ROW_CHARS_MAX: Final = 300


def fails_the_task(error: BaseException) -> bool:
    """User code may raise anything: `sys.exit()`, `asyncio.CancelledError`. All of it fails the task, as
    every Throwable does in Flink, and not only its thread. A caller that drives a task on the main thread (a
    test, a simulation) gets its own exceptions: Ctrl-C, a time limit."""
    on_main = threading.current_thread() is threading.main_thread()
    return isinstance(error, Exception | SystemExit) or not on_main


def task_failure(error: BaseException) -> TaskFailure:
    """Class, message and traceback, whether a restart may help, and the input partition that is lost."""
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    if isinstance(_first(error), ModuleNotFoundError) and not isinstance(error, MissingCode):
        notes += "; install it on the workers"
    trace = "".join(traceback.format_exception(error))
    return TaskFailure(
        kind=_kind(error).__name__,
        message=_writable(f"{error}{notes}")[:MESSAGE_CHARS_MAX],
        traceback=_writable(trace)[-TRACEBACK_CHARS_MAX:],
        user_traceback=_writable(_users_traceback(error))[-TRACEBACK_CHARS_MAX:],
        recoverable=_is_recoverable(error),
        lost_partition=_lost_partition(error),
    )


def shown_row(batch: Batch | None, position: int | None) -> str:
    """The row for the end of a message, as Python would print it: with its values one finds it in the source.
    Empty: it is not known, or Python has no values for it."""
    if batch is None or position is None or position >= batch.num_rows:
        return ""
    try:
        text = str(batch.records.slice(position, 1).to_pylist()[0])
    except (pa.ArrowException, ArithmeticError, ValueError):
        return ""
    return f": {text}" if len(text) <= ROW_CHARS_MAX else f": {text[:ROW_CHARS_MAX]}…"


def _users_traceback(error: BaseException) -> str:
    """What user code raised, from the first cause to the last, with the frames of the user's own code."""
    raised = [cause for cause in _chain(error) if type(cause).__module__.partition(".")[0] != "unistream"]
    if not any(isinstance(cause, UserCodeError) for cause in _chain(error)):
        return ""
    return CAUSED.join(users_part(cause) for cause in reversed(raised))


def _writable(text: str) -> str:
    """Texts of users may hold halves of surrogate pairs, which cannot be sent."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _kind(error: BaseException) -> type[BaseException]:
    """Errors of user code are one kind, except SuppressRestarts."""
    if any(isinstance(cause, SuppressRestarts) for cause in _chain(error)):
        return SuppressRestarts
    return UserCodeError if isinstance(error, UserCodeError) else type(error)


def _is_recoverable(error: BaseException) -> bool:
    """False if any cause says so, or for a configuration error, also of user code. No restart repairs a
    damaged snapshot or installs a missing module."""
    if _kind(error) is SuppressRestarts or isinstance(error, MissingCode):
        return False
    return not isinstance(_first(error), ConfigError | CorruptSnapshot | Fenced | ModuleNotFoundError)


def _first(error: BaseException) -> BaseException | None:
    """What user code raised, where user code did; else the error."""
    return next((cause for cause in _chain(error) if not isinstance(cause, UserCodeError)), None)


def _lost_partition(error: BaseException) -> PartitionId | None:
    """The partition that was lost, wherever in the chain of causes it is named; None: none was."""
    return next((cause.partition for cause in _chain(error) if isinstance(cause, PartitionLost)), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """`error`, what it was raised from, and so on."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__
