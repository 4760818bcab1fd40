"""What a command's failure means for the shell: exit code and one sentence on stderr."""

from __future__ import annotations

import sys
from typing import Final

from unistream.base.errors import (
    ConfigError,
    CorruptSnapshot,
    UnistreamError,
    Unreachable,
    UserCodeError,
)

OK: Final = 0
JOB_FAILED: Final = 1
BAD_INPUT: Final = 2
UNREACHABLE: Final = 3
SNAPSHOT_ADVICE: Final = "put the file back from a copy, or choose another snapshot by hand (run -s DIR)"
INTERRUPTED: Final = 130  # 128 + SIGINT, as shells do


def exit_code(error: UnistreamError) -> int:
    """Sorted by what the user can do about it."""
    match error:
        case ConfigError() | CorruptSnapshot() | UserCodeError():
            return BAD_INPUT
        case Unreachable():
            return UNREACHABLE
    return JOB_FAILED


def told(error: UnistreamError) -> str:
    """Its text, and for a damaged snapshot what to do."""
    if isinstance(error, CorruptSnapshot):
        return f"{error}; {SNAPSHOT_ADVICE}"
    return str(error)


def complain(text: str) -> None:
    """One paragraph on stderr."""
    sys.stderr.write(f"error: {text}\n")
    sys.stderr.flush()


def report(text: str) -> None:
    """One line on stderr about what goes on; stdout is for the result."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
