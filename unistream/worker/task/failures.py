"""An exception as it is reported to the master."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterator
from typing import Final

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
from unistream.model.messages import TaskFailure

TRACEBACK_CHARS_MAX: Final = 32_768  # the end of a traceback says most; a message stays far below a frame
MESSAGE_CHARS_MAX: Final = 4_096


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
        recoverable=_is_recoverable(error),
        lost_partition=_lost_partition(error),
    )


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
    """Wherever in the chain of causes it is named."""
    return next((cause.partition for cause in _chain(error) if isinstance(cause, PartitionLost)), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """`error`, what it was raised from, and so on."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__
