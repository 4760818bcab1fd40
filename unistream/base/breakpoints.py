"""`breakpoint()` in a user's function: a worker has no terminal, so it would wait for ever, or end at once
because its input is closed."""

from __future__ import annotations

import os
import sys
from typing import Final, NoReturn

VARIABLE: Final = "PYTHONBREAKPOINT"


def refuse_breakpoints() -> None:
    """Makes `breakpoint()` an error in this process. A debugger that PYTHONBREAKPOINT names may listen
    elsewhere: it stays."""
    if not os.environ.get(VARIABLE):
        sys.breakpointhook = _has_no_terminal


def _has_no_terminal(*_: object, **__: object) -> NoReturn:
    raise RuntimeError(
        "breakpoint(): a worker has no terminal. Call the function in a harness, or run the pipeline in "
        f"unistream.testing.MiniCluster, under pytest -s; or set {VARIABLE} to a debugger that listens"
    )
