"""Checks once, before a job exists, whether snapshots can be stored somewhere.

Permanent errors (a file where a directory should be, no permission, no such bucket, a store without
conditional writes) are distinguished from a store that does not answer now. Leaves nothing but the directory
itself, and that only after success.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Final

from unistream.base.errors import ConfigError, Unreachable
from unistream.base.object_stores import is_s3
from unistream.base.os_failures import stays
from unistream.storage.location import READ_PAUSE_S, Location
from unistream.storage.state_files import random_name

ATTEMPTS: Final = 3  # if a store does not answer; its own client retries too

_NEVER: Final = (
    FileNotFoundError,
    NotImplementedError,
    ValueError,  # a name that the store does not accept, or a condition that it ignores
)
"""Errors that stay, besides those of an operating system that do."""


def check_writable(location: Location) -> None:
    """Makes the directory, writes an object in it, and removes that.

    Raises:
        ConfigError: it can never be written; says why.
        Unreachable: the store refused `ATTEMPTS` times for another reason, or did not answer.
    """
    made = _missing(location)
    try:
        _attempts(location)
    except BaseException:
        _remove(made)
        raise


def _attempts(location: Location) -> None:
    for attempt in range(ATTEMPTS):
        try:
            return _write(location)
        except Exception as error:  # each store's client has errors of its own
            cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
            if stays(cause) or isinstance(cause, _NEVER) or getattr(cause, "errno", None) == errno.EINVAL:
                raise ConfigError(f"cannot store snapshots in {_shown(location)}: {_why(cause)}") from error
            if attempt == ATTEMPTS - 1:
                raise Unreachable(
                    f"cannot store snapshots in {_shown(location)} now: {_why(cause)} ({ATTEMPTS} attempts)"
                ) from error
        location.pause(READ_PAUSE_S * 4**attempt)
    return None


def _write(location: Location) -> None:
    location.fs.makedirs(location.path, exist_ok=True)
    probe = location.below(f"probe-{random_name()}")
    try:
        location.fs.pipe_file(probe.path, b"probe", mode="overwrite")
        if is_s3(location.url):
            _create_again(probe)
    finally:
        with contextlib.suppress(Exception):  # only writing it counts
            location.fs.rm_file(probe.path)


def _create_again(probe: Location) -> None:
    """Raises ValueError: the store ignores the condition of a put, so that of two leaders both could complete
    a checkpoint, and the second one would replace that of the first."""
    try:
        probe.fs.pipe_file(probe.path, b"again", mode="create")
    except FileExistsError:
        return
    raise ValueError(
        "the store replaces an object although it was asked not to (it ignores the header If-None-Match: *), "
        "so two masters could complete the same checkpoint; use a store, or a version of it, that has "
        "conditional writes"
    )


def _missing(location: Location) -> list[Path]:
    """Local directories that do not exist yet, the innermost first."""
    if not location.is_local:
        return []
    path = Path(location.path)
    return [one for one in (path, *path.parents) if not os.path.lexists(one)]


def _remove(made: list[Path]) -> None:
    for path in made:
        with contextlib.suppress(OSError):  # it was never made, or is used by others
            path.rmdir()


def _shown(location: Location) -> str:
    return location.path if location.is_local else location.url


def _why(error: BaseException) -> str:
    if isinstance(error, FileExistsError | NotADirectoryError):
        return "it is a file, or below one"
    text = getattr(error, "strerror", None) or str(error).partition("\n")[0]
    return text or type(error).__name__
