"""A sink in a process that dies: what a job does with it, from what is durable to the end.

A life begins with the newest checkpoint that is durable and tells the committer of it, whatever became of its
commit. Then it makes the checkpoints that are left.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import cloudpickle
import pyarrow as pa

from tests.contract.sinks.model import Rows, committed, held
from tests.contract.sinks.rig import Rig
from tests.contract.sinks.run import SinkRun
from tests.contract.sinks.values import KINDS, batch
from unistream.port.sink import CommitOutcome

CHECKPOINTS: Final = 3


@dataclass(frozen=True, kw_only=True)
class Line:
    """Lives of one job.

    Attributes:
        rig: With the target; the same in all processes.
        way: Of the rig.
        kind: Of values.
        folder: Where the checkpoints are durable.
        attempt: The number of the life.
    """

    rig: Rig
    way: str
    kind: str
    folder: Path
    attempt: int = 0

    @property
    def committed(self) -> Path:
        """It is there as soon as the first commit is made."""
        return self.folder / "committed"

    def next(self) -> Line:
        return replace(self, attempt=self.attempt + 1)

    def store(self) -> Path:
        path = self.folder / "line"
        path.write_bytes(cloudpickle.dumps(self))
        return path

    def old(self) -> pa.RecordBatch:
        """Of others, before the first life."""
        return batch(self._values, first=1_000, n=0)

    def expected(self, *, filled: bool) -> Rows:
        """At the end, in plain Python."""
        way = self.rig.ways[self.way]
        found = self._rows(self.old()) if filled else frozenset()
        for checkpoint in range(1, self._last + 1):
            found = committed(found, way.rule, way.place, self._rows(self._batch(checkpoint)))
        return found

    def live(self) -> None:
        durable = max((int(one.stem) for one in self.folder.glob("*.durable")), default=None)
        saved = {} if durable is None else cloudpickle.loads(self._file(durable).read_bytes())
        staged, states = saved.get("staged", []), saved.get("states", {})
        goes_on = None if self._is_batch else durable
        run = SinkRun(
            self.rig.sink(self.rig.ways[self.way]),
            writers=2,
            restored=goes_on,
            attempt=self.attempt,
            checkpointing=not self._is_batch,
            **({} if self._is_batch else states),
        )
        with run:
            if durable is not None:
                self._commit(run, durable, staged)
            for checkpoint in range((durable or 0) + 1, self._last + 1):
                self._commit(run, checkpoint, self._staged(run, checkpoint))

    def _staged(self, run: SinkRun, checkpoint: int) -> list[bytes]:
        rows = self._batch(checkpoint)
        middle = rows.num_rows // 2
        staged = run.staged(checkpoint, rows[:middle], rows[middle:])
        saved = {"staged": staged, "states": run.states(checkpoint)}
        written = self.folder / "written"
        written.write_bytes(cloudpickle.dumps(saved))
        written.rename(self._file(checkpoint))
        return staged

    def _commit(self, run: SinkRun, checkpoint: int, staged: list[bytes]) -> None:
        outcome = run.told(checkpoint, staged).outcome
        assert outcome in (CommitOutcome.COMMITTED, CommitOutcome.ALREADY_COMMITTED)
        for thread in threading.enumerate():
            if thread.name == self.rig.background:
                thread.join()
        self.committed.touch()

    def _file(self, checkpoint: int) -> Path:
        return self.folder / f"{checkpoint}.durable"

    @property
    def _is_batch(self) -> bool:
        return self.rig.ways[self.way].rule == "overwrite"

    @property
    def _last(self) -> int:
        return 1 if self._is_batch else CHECKPOINTS

    @property
    def _values(self) -> pa.Array[Any]:
        values = KINDS[self.kind]
        return values.drop_null() if self.rig.ways[self.way].place == "key" else values

    def _batch(self, checkpoint: int) -> pa.RecordBatch:
        """The same in each life, as a source that is reset gives it. One partition, or key, is not ours."""
        way = self.rig.ways[self.way]
        values = self._values if way.place == "column" else self._values[1:]
        replaces_ids = way.rule == "upsert" and way.place != "key"
        return batch(values, first=0 if replaces_ids else 100 * checkpoint, n=checkpoint)

    def _rows(self, rows: pa.RecordBatch) -> Rows:
        way = self.rig.ways[self.way]
        return held(one | {"v": self.rig.shown(one["v"], way)} for one in rows.to_pylist())


def main() -> None:
    """Lives the `Line` that the first argument is the file of."""
    line = cloudpickle.loads(Path(sys.argv[1]).read_bytes())
    assert isinstance(line, Line)
    line.live()
