"""What tests of failover share: generated rows, and a function that notes and fails at set rows.

Workers get this module by value, since they cannot import it.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import unistream as us
from unistream.base.ids import CheckpointId
from unistream.connector.datagen import generate
from unistream.model.elements import Batch
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitOutcome, CommitRequest, CommitResult, SinkContext

WINDOW_MS = 1_000
AFTER_S = 0.5  # by then everybody has heard of a failure
STEP_MS = 5
COLUMNS = {
    "id": us.datagen.Sequential(),
    "key": us.datagen.RandomInt(0, 10),
    "value": us.datagen.RandomInt(0, 1000),
    "at": us.datagen.EventTime(start_ms=1_000_000, step_ms=STEP_MS, disorder_ms=100),
}


@dataclass(frozen=True)
class Seen:
    """One batch that a function was called with."""

    at_ms: int
    ids: tuple[int, ...]


class Tap:
    """Passes rows on; notes which, and when.

    Args:
        fail_at: Ids of rows; the first time each of them comes, by whichever attempt, the function raises.
        after: A file; the function raises once when it has been there for `AFTER_S`.
        error: The name of the class to raise, of the package or of Python.
        pause_ms: Each batch takes as long, so that a job over files lasts a while.
        hold_at: Id of a row that is not passed on before there is a file `<folder>/<name>.go`.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        fail_at: Sequence[int] = (),
        after: Path | None = None,
        error: str = "ValueError",
        pause_ms: int = 0,
        hold_at: int | None = None,
    ) -> None:
        self.name = name
        self._folder = str(folder)
        self._fail_at = tuple(fail_at)
        self._after = str(after) if after is not None else None
        self._error = error
        self._pause_ms = pause_ms
        self._hold_at = hold_at
        self._log: str | None = None
        os.makedirs(folder, exist_ok=True)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        ids = batch.column("id").to_pylist()
        for threshold in self._fail_at:
            if threshold in ids and self._first(str(threshold)):
                self._raise(f"{self.name} does not like row {threshold}")
        if self._is_after() and self._first("after"):
            self._raise(f"{self.name} fails too")
        if self._log is None:
            self._log = os.path.join(self._folder, f"{self.name}-{uuid.uuid4().hex}.log")
        with open(self._log, "a") as log:
            log.write(json.dumps([int(time.time() * 1000), ids]) + "\n")
        time.sleep(self._pause_ms / 1000)
        while self._hold_at in ids and not os.path.exists(os.path.join(self._folder, f"{self.name}.go")):
            time.sleep(0.02)
        return batch

    def _is_after(self) -> bool:
        if self._after is None or not os.path.exists(self._after):
            return False
        return time.time() - os.path.getmtime(self._after) > AFTER_S

    def _first(self, what: str) -> bool:
        """Nobody has failed because of it before."""
        try:
            with open(os.path.join(self._folder, f"{self.name}.failed-{what}"), "x") as mark:
                mark.write(str(int(time.time() * 1000)))
        except FileExistsError:
            return False
        return True

    def _raise(self, text: str) -> None:
        kinds = {
            "ValueError": ValueError,
            "SuppressRestarts": us.SuppressRestarts,
            "ConfigError": us.ConfigError,
        }
        raise kinds[self._error](text)


class SliceSink:
    """Ids of rows, committed by each subtask for itself, so that it ties no subtasks together."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    @property
    def name(self) -> str:
        return "slices"

    @property
    def global_committer(self) -> bool:
        return False

    def check(self, schema: pa.Schema | None) -> None:
        """Any rows with an id."""

    def create_writer(self) -> _SliceWriter:
        return _SliceWriter()

    def create_committer(self) -> _SliceCommitter:
        return _SliceCommitter(self._folder)


class _SliceWriter:
    def __init__(self) -> None:
        self._ids: list[int] = []

    def open(self, context: SinkContext, restored: Sequence[bytes]) -> None:
        """Nothing is taken over: what was prepared lies with the committer."""

    def write(self, batch: Batch) -> None:
        self._ids += batch.records.column("id").to_pylist()

    def flush(self, end_of_input: bool) -> None:
        """The ids travel in the committable."""

    def prepare_commit(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        ids, self._ids = self._ids, []
        return [json.dumps(ids).encode()] if ids else []

    def snapshot_state(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        return ()

    def close(self) -> None:
        """Nothing is held."""


class _SliceCommitter:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._index = 0

    def open(self, context: SinkContext) -> None:
        os.makedirs(self._folder, exist_ok=True)
        self._index = context.index

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        ids = [row for payload in request.committables for row in json.loads(payload)]
        path = os.path.join(self._folder, f"{self._index}-{request.checkpoint_id}.json")
        with open(f"{path}.{uuid.uuid4().hex}", "x") as file:
            json.dump(ids, file)
        try:
            os.link(file.name, path)
        except FileExistsError:
            return CommitResult(CommitOutcome.ALREADY_COMMITTED)
        return CommitResult(CommitOutcome.COMMITTED, len(ids))

    def close(self) -> None:
        """Nothing is held."""


def committed(folder: Path) -> list[int]:
    """All ids that a `SliceSink` made visible, sorted."""
    return sorted(row for path in folder.glob("*.json") for row in json.loads(path.read_text()))


def seen(name: str, folder: Path) -> list[Seen]:
    """All batches that came through the tap of that name, in all attempts, oldest first."""
    batches = []
    for log in folder.glob(f"{name}-*.log"):
        complete = log.read_text().split("\n")[:-1]  # a line may be half written
        for line in complete:
            at_ms, ids = json.loads(line)
            batches.append(Seen(at_ms, tuple(ids)))
    return sorted(batches, key=lambda batch: batch.at_ms)


def times_seen(name: str, folder: Path) -> Counter[int]:
    """How often each row came through the tap of that name."""
    return Counter(row for batch in seen(name, folder) for row in batch.ids)


def failed_ms(name: str, folder: Path) -> list[int]:
    """When the tap raised, oldest first."""
    return sorted(int(mark.read_text()) for mark in folder.glob(f"{name}.failed-*"))


def rows(count: int, *, seed: int) -> pa.Table:
    """All rows of a generated source with `COLUMNS`."""
    return pa.Table.from_batches([generate(COLUMNS, seed, np.arange(count, dtype=np.int64))])


def windows(count: int, *, seed: int) -> list[tuple[int, int, int, int]]:
    """(key, start of window in ms, rows, sum of values), sorted."""
    table = rows(count, seed=seed)
    at_ms = pc.cast(pc.cast(table["at"], pa.timestamp("ms")), pa.int64())
    slot = pc.multiply(pc.divide(at_ms, WINDOW_MS), WINDOW_MS)
    grouped = table.append_column("slot", slot).group_by(["key", "slot"])
    found = grouped.aggregate([([], "count_all"), ("value", "sum")])
    return sorted(
        zip(*(found[name].to_pylist() for name in ("key", "slot", "count_all", "value_sum")), strict=True)
    )
