"""Which code is the user's own, and its place in a traceback."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from traceback import StackSummary, TracebackException, walk_tb
from types import FrameType, TracebackType
from typing import Final

_OURS: Final = str(Path(__file__).parents[1]) + os.sep
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_INSTALLED_BELOW: Final = tuple(
    os.path.realpath(sysconfig.get_path(kind)) + os.sep
    for kind in ("stdlib", "platstdlib", "purelib", "platlib")
)
_CYTHON: Final = (".pyx", ".pxi", ".pxd")  # such code names its files as its build did: `pyarrow/error.pxi`
_GENERATED: Final = "<string>"  # code that was made from a text, as dataclasses do
_DYNAMIC: Final = (
    "<dynamic-code>"  # so cloudpickle from 3.1.3 on calls each file, unless our pickler says another name
)


@lru_cache(maxsize=4096)
def is_installed(path: str) -> bool:
    """It is a file of the standard library or of an installed package, of this machine or another one."""
    if not _INSTALLED.isdisjoint(path.split(os.sep)):
        return True
    return os.path.realpath(path).startswith(_INSTALLED_BELOW)


def raised_at(trace: TracebackType | None) -> str | None:
    """``/srv/ada/job.py:12``: the last line of the user's own code in a traceback.

    Where there is none, the last line of a library that is not ours: the user's function is one of a library.
    Code that was typed into a shell has the shell's name for it (``<stdin>:1``). None: the error is ours.
    """
    own, typed, library = None, None, None
    for file, frame, line in _places(trace):
        if file.startswith("<"):
            typed = f"{file}:{line}" if frame.f_globals.get("__name__") == "__main__" else typed
        elif is_installed(file):
            library = f"{file}:{line}"
        else:
            own = f"{file}:{line}"
    return own or typed or library


def users_part(error: BaseException) -> str:
    """The traceback of `error` alone, as Python prints it, without frames of ours and of installed libraries
    (those stay where there are no others)."""
    printed = TracebackException(type(error), error, error.__traceback__)
    foreign = [
        frame
        for frame in printed.stack
        if not frame.filename.startswith((_OURS, "<frozen ")) and not _is_unknown_here(frame.filename)
    ]
    own = [f for f in foreign if not is_installed(f.filename) and f.filename != _GENERATED]
    printed.stack = StackSummary.from_list(own or foreign)
    return "".join(printed.format(chain=False))


def _is_unknown_here(file: str) -> bool:
    """Whether a file is of a library in Cython: nobody here has that file."""
    return file.endswith(_CYTHON) and not os.path.isabs(file)


def _places(trace: TracebackType | None) -> Iterator[tuple[str, FrameType, int]]:
    """File, frame and line of each call, without our own calls."""
    for frame, line in walk_tb(trace):
        file = frame.f_code.co_filename
        if file == _DYNAMIC:  # the function's module is known all the same
            file = str(frame.f_globals.get("__file__") or file)
        if _is_unknown_here(file):
            continue
        if not file.startswith((_OURS, "<frozen ")):
            yield file, frame, line
