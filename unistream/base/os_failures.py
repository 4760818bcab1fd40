"""What an error of the operating system, or of a store that speaks like one, means for the caller: an outage,
which may pass, or something that stays until somebody changes it."""

from __future__ import annotations

import errno
from typing import Final

from unistream.base.errors import ConfigError, Unreachable

_STAYS: Final = (IsADirectoryError, NotADirectoryError, PermissionError, FileExistsError)
_STAYS_TOO: Final = frozenset({errno.ENAMETOOLONG, errno.EROFS, errno.ELOOP})
"""Errors that stay and have no class of their own. A full disk, and a name that is not there (of a volume
that is not mounted yet), may be another way a moment later."""


def stays(error: BaseException) -> bool:
    """It makes no sense to try again.

    >>> stays(OSError(errno.ELOOP, "Too many levels of symbolic links")), stays(OSError(errno.ENOSPC, "full"))
    (True, False)
    """
    return isinstance(error, _STAYS) or (isinstance(error, OSError) and error.errno in _STAYS_TOO)


def failure(what: str, error: OSError) -> ConfigError | Unreachable:
    """`what`: that could not be done, and where.

    >>> failure("could not write /f/a", NotADirectoryError(errno.ENOTDIR, "Not a directory", "/f/a"))
    ConfigError("could not write /f/a: [Errno 20] Not a directory: '/f/a'")
    """
    text = f"{what}: {error}"
    return ConfigError(text) if stays(error) else Unreachable(text)
