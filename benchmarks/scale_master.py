"""A command of `unistream` that counts what it writes, for `benchmarks.scale`.

    python -m benchmarks.scale_master COUNTS cluster start …

COUNTS is a file of 64-bit numbers, in the order of `COUNTED`, that is current at any time: rows of the
metadata database that were changed, its commits, and values that the folder of a cluster of one master gets
(of several masters ZooKeeper counts itself); microseconds of garbage collections.
"""

from __future__ import annotations

import gc
import mmap
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

COUNTED: Final = ("sql_rows", "sql_commits", "ha_writes", "gc_us")
_FORM: Final = f"<{len(COUNTED)}q"
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

    def executed(_connection: Any, statement: Any, many: Any, _one: Any, _options: Any) -> None:
        if getattr(statement, "is_dml", False):
            counts.add("sql_rows", max(1, len(many)))

    def audited(name: str, values: tuple[Any, ...]) -> None:
        if name == "os.rename" and str(values[1]).endswith(_VALUE):
            counts.add("ha_writes")

    began_ns = 0

    def collected(phase: str, _facts: object) -> None:
        nonlocal began_ns
        if phase == "start":
            began_ns = time.thread_time_ns()
        else:
            counts.add("gc_us", (time.thread_time_ns() - began_ns) // 1000)

    gc.callbacks.append(collected)
    event.listen(Engine, "before_execute", executed)
    event.listen(Engine, "commit", lambda _connection: counts.add("sql_commits"))
    sys.addaudithook(audited)


def main(words: list[str]) -> int:
    from unistream.cli.main import main as command

    count_into(Counts(Path(words[0])))
    return command(words[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
