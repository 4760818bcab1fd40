"""Names of files and folders: which of them no file system has. Pure."""

from __future__ import annotations

import os
from typing import Final

NAME_BYTES_MAX: Final = 255  # of Linux, macOS and Windows, and of HDFS


def refused_path(path: str) -> str | None:
    r"""Why no file system has the path, as a sentence; None: it may be there.

    >>> refused_path("/lake/a\0")
    "'a\\x00' is no name of a file or folder: it has a NUL character; the path is '/lake/a\\x00'"
    >>> refused_path("s3://lake/orders")
    """
    for part in path.split("/"):
        if len(os.fsencode(part)) > NAME_BYTES_MAX or "\0" in part:
            why = "a NUL character" if "\0" in part else f"more than {NAME_BYTES_MAX} bytes"
            return f"{part!r:.60} is no name of a file or folder: it has {why}; the path is {path!r:.200}"
    return None
