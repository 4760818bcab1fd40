"""An exception as the master hears of it."""

from __future__ import annotations

import traceback
from typing import Final

from unistream.base.errors import ConfigError, Fenced, PartitionLost, UserCodeError
from unistream.base.ids import PartitionId
from unistream.model.messages import TaskFailure

TRACEBACK_CHARS_MAX: Final = 32_768  # the end of a traceback says most; a message stays far below a frame
MESSAGE_CHARS_MAX: Final = 4_096


def task_failure(error: BaseException) -> TaskFailure:
    """Why a task failed: class, sentence, traceback, whether a restart may help, and whether what it reads is
    lost."""
    kind = UserCodeError if isinstance(error, UserCodeError) else type(error)
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    trace = "".join(traceback.format_exception(error))
    return TaskFailure(
        kind=kind.__name__,
        message=f"{error}{notes}"[:MESSAGE_CHARS_MAX],
        traceback=trace[-TRACEBACK_CHARS_MAX:],
        recoverable=not isinstance(error, ConfigError | Fenced),
        lost_partition=_lost_partition(error),
    )


def _lost_partition(error: BaseException | None) -> PartitionId | None:
    """Wherever in the chain of causes it is named."""
    seen = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, PartitionLost):
            return error.partition
        seen.add(id(error))
        error = error.__cause__
    return None
