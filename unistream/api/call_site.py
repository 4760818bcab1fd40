"""The line of the user's program that adds an operator, for people who look at the running job."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import Final

_OURS: Final = str(Path(__file__).parents[1]) + os.sep
_LIBRARY: Final = (sysconfig.get_path("stdlib") + os.sep, "<frozen ")
_INSTALLED: Final = f"{os.sep}site-packages{os.sep}"


def call_site() -> str:
    """``FILE:LINE`` of the innermost call that is neither of this package nor of Python's library; empty if
    there is none."""
    frame = sys._getframe(1)
    while not _is_of_user(frame.f_code.co_filename):
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_of_user(file: str) -> bool:
    return not file.startswith(_OURS) and (not file.startswith(_LIBRARY) or _INSTALLED in file)
