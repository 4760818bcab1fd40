"""What a command says on stderr, and its exit code."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import textwrap
from typing import Final

from unistream.base.errors import (
    ConfigError,
    CorruptSnapshot,
    OutcomeUnknown,
    UnistreamError,
    Unreachable,
    UserCodeError,
)

GRPC_LEVEL: Final = "GRPC_VERBOSITY"  # of what it says on stderr
OK: Final = 0
JOB_FAILED: Final = 1
BAD_INPUT: Final = 2
UNREACHABLE: Final = 3
SNAPSHOT_ADVICE: Final = "restore the file from a copy, or choose another snapshot (run -s DIR)"
INTERRUPTED: Final = 130  # 128 + SIGINT, as shells do


def exit_code(error: UnistreamError) -> int:
    """The exit code of an error, by what the user can do about it."""
    match error:
        case ConfigError() | CorruptSnapshot() | UserCodeError():
            return BAD_INPUT
        case Unreachable() | OutcomeUnknown():
            return UNREACHABLE
    return JOB_FAILED


def sentence(error: UnistreamError) -> str:
    """The text of an error, and for a damaged snapshot what to do."""
    return f"{error}; {SNAPSHOT_ADVICE}" if isinstance(error, CorruptSnapshot) else str(error)


def complain(text: str) -> None:
    """Prints an error on stderr."""
    report(f"error: {text}")


def report(text: str) -> None:
    """Prints a line on stderr; stdout is for the result."""
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
    sys.stderr.write(f"{between_words(text, width)}\n")
    sys.stderr.flush()


def between_words(text: str, width: int | None) -> str:
    """A sentence, broken where a terminal of so many columns would break a word. Paths stay whole, as is
    a text that has lines already.

    >>> between_words("error: /data/flights does not exist", 26).splitlines()
    ['error: /data/flights does', 'not exist']
    """
    if width is None or len(text) <= width or "\n" in text:
        return text
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def log_to_stderr(verbose: bool) -> None:
    """Logs warnings on stderr, with `verbose` also events."""
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("unistream").setLevel(logging.INFO if verbose else logging.WARNING)
    if not verbose:
        os.environ.setdefault(GRPC_LEVEL, "ERROR")  # else each connection that fails has lines of its own
