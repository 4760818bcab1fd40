"""What a sink records of its sources' positions in a simulated cluster: its commits have exactly the rows
before them, whatever dies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

import unistream as us
from tests.simulation.reached_by import seeds
from unistream.model.elements import Batch
from unistream.model.messages import Split
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitOutcome, CommitRequest, CommitResult
from unistream.port.source import Polled, Rows

ROWS, SPLITS = 240, 3
HISTORY = range(1_000, 1_090)
BOUNDS = [ROWS * i // SPLITS for i in range(SPLITS + 1)]
UNALIGNED = {
    "execution.checkpointing.unaligned.enabled": "true",
    "execution.checkpointing.aligned-checkpoint-timeout": "0 ms",
}


def kept(number: int) -> bool:
    """It passes the filter."""
    return number % 3 != 0


class Log:
    """Rows in partitions with offsets, as a topic has them."""

    name = "log"

    def __init__(self) -> None:
        self._rows = us.StaticSource(pa.table({"id": pa.array(range(ROWS), pa.int64())}), splits=SPLITS)

    @property
    def schema(self) -> pa.Schema:
        return self._rows.schema

    def info(self) -> us.SourceInfo:
        return structs.replace(self._rows.info(), pull=False, recorded_as="log")

    def create_reader(self) -> Any:
        return _LogReader(self._rows.create_reader())


class _LogReader:
    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._offsets: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def add_splits(self, splits: Sequence[Split]) -> None:
        self._offsets |= {split.id: split.recorded[1] if split.recorded else 0 for split in splits}
        self._reader.add_splits(splits)

    def poll(self) -> Polled:
        polled: Polled = self._reader.poll()
        if isinstance(polled, Rows):
            self._offsets[polled.split_id] += polled.records.num_rows
        return polled

    def snapshot(self) -> Sequence[Split]:
        return [
            structs.replace(split, recorded=(split.id, self._offsets[split.id]))
            for split in self._reader.snapshot()
        ]


class Book:
    """A sink with one file for each commit: its rows, and up to where they are all."""

    name = "book"
    global_committer = True
    records_positions = True

    def __init__(self, folder: Path, history: range) -> None:
        self.folder = folder
        self._history = {number for number in history if kept(number)}
        self.seen = 0  # commits with positions in the middle of the rows

    def check(self, schema: pa.Schema | None) -> None:
        """Takes all."""

    def create_writer(self) -> _Writer:
        return _Writer()

    def create_committer(self) -> _Committer:
        return _Committer(self.folder)

    def pages(self) -> list[tuple[list[int], dict[str, int]]]:
        files = sorted(self.folder.glob("*.json"), key=lambda path: int(path.stem))
        return [(page["rows"], page["offsets"]) for page in map(json.loads, map(Path.read_text, files))]

    def rows(self) -> list[int]:
        return [number for numbers, _ in self.pages() for number in numbers]

    def wrong(self) -> list[str]:
        """Commits whose rows are not those before their positions."""
        found: list[str] = []
        table: list[int] = []
        for numbers, offsets in self.pages():
            table += numbers
            before = {
                number
                for split, offset in offsets.items()
                for first in [BOUNDS[int(split.removeprefix("static-"))]]
                for number in range(first, first + offset)
                if kept(number)
            }
            if offsets and before | self._history != set(table):
                lost, more = sorted(before - set(table)), sorted(set(table) - before)
                found.append(f"{offsets}: without {lost}, and with {more}")
            self.seen += bool(offsets) and 0 < len(before) < ROWS * 2 // 3
        return found

    def clear(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()


class _Writer:
    def open(self, context: object, restored: object) -> None:
        self._numbers: list[int] = []

    def write(self, batch: Batch) -> None:
        self._numbers += batch.records.column("id").to_pylist()

    def flush(self, end_of_input: bool) -> None:
        """Nothing is buffered."""

    def prepare_commit(self, checkpoint_id: int) -> list[bytes]:
        numbers, self._numbers = self._numbers, []
        return [json.dumps(numbers).encode()] if numbers else []

    def snapshot_state(self, checkpoint_id: int) -> list[bytes]:
        return []

    def close(self) -> None:
        """Holds nothing."""


class _Committer:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, context: object) -> None:
        """There is nothing to open."""

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        return self.commit_all(permit, [request])

    def commit_all(self, permit: CommitPermit, requests: Sequence[CommitRequest]) -> CommitResult:
        last = max((int(path.stem) for path in self._folder.glob("*.json")), default=0)
        new = [request for request in requests if request.checkpoint_id > last]
        if not new:
            return CommitResult(CommitOutcome.ALREADY_COMMITTED)
        numbers = [n for request in new for payload in request.committables for n in json.loads(payload)]
        offsets = {split: offset for one in permit.positions for split, offset in one.offsets.items()}
        page = self._folder / f"{new[-1].checkpoint_id}.json"
        page.with_suffix(".tmp").write_text(json.dumps({"rows": numbers, "offsets": offsets}))
        page.with_suffix(".tmp").rename(page)
        return CommitResult(CommitOutcome.COMMITTED, len(numbers))

    def close(self) -> None:
        """Holds nothing."""


def pipeline(env: us.Environment, book: Book, history: range) -> None:
    source: Any = Log()
    if history:
        before = us.StaticSource(pa.table({"id": pa.array(history, pa.int64())}), splits=4)
        source = us.HybridSource(before, source)
    rows = env.set_parallelism(2).from_source(source, us.WatermarkStrategy.no_watermarks(), "log").uid("log")
    passed = rows.filter_batches(lambda batch: pa.array([kept(n) for n in batch.column("id").to_pylist()]))
    passed.rebalance().sink_to(book).uid("book")


@pytest.mark.parametrize("history", [range(0), HISTORY], ids=["", "behind a history"])
@pytest.mark.parametrize("rescale", [False, True], ids=["", "rescaled"])
@pytest.mark.parametrize("config", [{}, UNALIGNED], ids=["aligned", "unaligned"])
def test_a_commit_with_positions_has_exactly_the_rows_before_them(
    tmp_path: Path, config: dict[str, str], rescale: bool, history: range
) -> None:
    book = Book(tmp_path, history)
    report = us.testing.simulate(
        lambda env: pipeline(env, book, history),
        seeds=seeds(4, 15),
        config=config,
        keep_sinks=True,
        outputs={"book": book.rows, "wrong": book.wrong},
        reset=book.clear,
        rescale=rescale,
    )
    report.raise_for_failures()
    assert book.seen > report.seeds, "positions were recorded"
