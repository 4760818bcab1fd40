"""A source and a sink of a user's own, as the guide has them: classes, and no package.

feed (a split for each file in a folder, whose name says how many rows) ─┬─► collect    exactly once
                                                                         └─► lines      at least once
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

import unistream as us
from unistream.connector.collect import CollectSink, read_collected

PAGE = 20
SCHEMA = pa.schema([("split", pa.string()), ("id", pa.int64())])
Row = tuple[str, int]

_log = logging.getLogger(__name__)


class Feed(us.PollingSource):
    """`rows` rows of each file in a folder; a file may come later. `until`: in pages of a single row as long
    as that folder is empty, so that the job goes on until something has happened."""

    schema = SCHEMA
    discovery_interval = "200 ms"

    def __init__(
        self, folder: Path, rows: int, *, bounded: bool, pause: str = "10 ms", until: Path | None = None
    ) -> None:
        self.folder, self.rows, self.bounded, self.until = folder, rows, bounded, until
        self.interval = self.interval_after_rows = pause

    def splits(self) -> Iterable[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def open(self, context: us.ReaderContext) -> None:
        self.metrics = context.metrics

    def poll(self, split: str, position: int | None) -> tuple[pa.RecordBatch | None, int | None]:
        if position is None:
            _log.info("begins with %s", split)
        self.metrics.add("polls", 1)
        first = position or 0
        ids = range(first, min(first + self._page(), self.rows))
        if not ids:
            return None, None if self.bounded else first
        return pa.record_batch([[split] * len(ids), list(ids)], schema=self.schema), ids.stop

    def _page(self) -> int:
        return 1 if self.until is not None and not any(self.until.iterdir()) else PAGE


class Lines(us.SimpleSink):
    """A file of lines of each attempt of each subtask, written when it is flushed."""

    name = "lines"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, context: us.SinkContext) -> None:
        self.folder.mkdir(exist_ok=True)
        self.path = self.folder / f"{context.index}-{uuid.uuid4().hex}"
        self.held: list[str] = []

    def write(self, rows: pa.RecordBatch) -> None:
        self.held += [f"{row['split']} {row['id']}" for row in rows.to_pylist()]

    def flush(self) -> None:
        with self.path.open("a") as file:
            file.writelines(f"{line}\n" for line in self.held)
        self.held = []


def build(env: us.Environment, folder: Path, feed: Feed) -> None:
    rows = env.from_source(feed, us.WatermarkStrategy.no_watermarks(), "feed").uid("feed")
    rows.sink_to(CollectSink(str(folder / "collected"))).uid("collected")
    rows.sink_to(Lines(folder / "lines")).uid("lines")


def name_splits(folder: Path, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).touch()


def collected(folder: Path) -> Counter[Row]:
    try:
        found = read_collected(str(folder / "collected"))
    except us.ConfigError:
        return Counter()
    return Counter((row["split"], row["id"]) for row in found.to_pylist())


def written(folder: Path) -> Counter[Row]:
    lines = [line.split() for file in (folder / "lines").iterdir() for line in file.read_text().splitlines()]
    return Counter((split, int(id)) for split, id in lines)


def expected(names: Iterable[str], rows: int) -> Counter[Row]:
    return Counter((name, id) for name in names for id in range(rows))


def assert_all_there(folder: Path, names: Iterable[str], rows: int, *, twice: bool) -> None:
    """`twice`: there were failures, so that rows may have come twice to the sink that says so."""
    wanted = expected(names, rows)
    assert collected(folder) == wanted
    found = written(folder)
    assert set(found) == set(wanted), "none is lost"
    assert twice or found == wanted
