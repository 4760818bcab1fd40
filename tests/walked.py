"""What is below a folder in which others write and remove meanwhile."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path


def walked(folder: Path, pattern: str = "*") -> list[Path]:
    """Files and folders below `folder` whose name matches, in order.

    `Path.rglob` fails when a folder that it has listed is removed before it comes there, as those of old
    checkpoints are; here such a folder is empty.
    """
    names = ((root, name) for root, folders, files in os.walk(folder) for name in (*folders, *files))
    return sorted(Path(root, name) for root, name in names if fnmatchcase(name, pattern))
