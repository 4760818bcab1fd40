"""An exception as the master hears of it."""

from __future__ import annotations

import traceback
from typing import Final

from unistream.base.errors import ConfigError, Fenced, UserCodeError
from unistream.model.messages import TaskFailure

TRACEBACK_CHARS_MAX: Final = 32_768  # the end of a traceback says most; a message stays far below a frame
MESSAGE_CHARS_MAX: Final = 4_096


def task_failure(error: BaseException) -> TaskFailure:
    """Why a task failed: class, sentence, traceback, and whether a restart may help."""
    kind = UserCodeError if isinstance(error, UserCodeError) else type(error)
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    trace = "".join(traceback.format_exception(error))
    return TaskFailure(
        kind=kind.__name__,
        message=f"{error}{notes}"[:MESSAGE_CHARS_MAX],
        traceback=trace[-TRACEBACK_CHARS_MAX:],
        recoverable=not isinstance(error, ConfigError | Fenced),
    )
