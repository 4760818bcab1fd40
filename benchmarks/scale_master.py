"""A command of `unistream` that counts what it writes, for `benchmarks.scale`.

    python -m benchmarks.scale_master COUNTS cluster start …

COUNTS is a file of 64-bit numbers, in the order of `COUNTED`, that is current at any time: statements that
change rows of the metadata database, its commits, and values that the folder of a cluster of one master gets
(of several masters ZooKeeper counts itself).
"""

from __future__ import annotations

import mmap
import struct
import sys
import threading
from pathlib import Path
from typing import Any, Final

COUNTED: Final = ("sql_rows", "sql_commits", "ha_writes")
_FORM: Final = f"<{len(COUNTED)}q"
_CHANGES: Final = ("INSERT", "UPDATE", "DELETE")
_VALUE: Final = ".value"  # see `unistream.ha.folder_store`


def begin(path: Path) -> None:
    """Makes the file, with nothing counted."""
    path.write_bytes(bytes(struct.calcsize(_FORM)))


class Counts:
    """The numbers in the file; thread-safe for this process."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._file = mmap.mmap(file.fileno(), 0)
        self._numbers = [0] * len(COUNTED)
        self._lock = threading.Lock()

    def add(self, name: str, count: int = 1) -> None:
        with self._lock:
            self._numbers[COUNTED.index(name)] += count
            struct.pack_into(_FORM, self._file, 0, *self._numbers)


def counts_in(path: Path) -> dict[str, int]:
    """What the process has counted so far."""
    return dict(zip(COUNTED, struct.unpack(_FORM, path.read_bytes()), strict=True))


def count_into(counts: Counts) -> None:
    """Counts what this process does from now on."""
    from sqlalchemy import Engine, event

    def executed(_connection: Any, _cursor: Any, sql: str, values: Any, _context: Any, many: bool) -> None:
        if sql.lstrip()[:6].upper() in _CHANGES:
            counts.add("sql_rows", len(values) if many else 1)

    def audited(name: str, values: tuple[Any, ...]) -> None:
        if name == "os.rename" and str(values[1]).endswith(_VALUE):
            counts.add("ha_writes")

    event.listen(Engine, "before_cursor_execute", executed)
    event.listen(Engine, "commit", lambda _connection: counts.add("sql_commits"))
    sys.addaudithook(audited)


def main(words: list[str]) -> int:
    from unistream.cli.main import main as command

    count_into(Counts(Path(words[0])))
    return command(words[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
