"""A SQLite file that is taken away while a master uses it, and given back.

Both in one step: a master writes at any time, and between two steps it would make the file again.
"""

from __future__ import annotations

from pathlib import Path


def take_away(file: Path) -> Path:
    """A folder stands in the place of `file`, which nobody opens as a database; where its content is now."""
    folder, link, moved = (file.with_name(name) for name in ("folder", "link", f"moved-{file.name}"))
    folder.mkdir(exist_ok=True)
    link.symlink_to(folder)
    moved.hardlink_to(file)
    link.replace(file)
    return moved


def give_back(file: Path, moved: Path) -> None:
    """The rows that `moved` has are at the place of `file` again."""
    moved.replace(file)
