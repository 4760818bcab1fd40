"""A topic that is being filled, and the job that copies it into a Delta table, for tests of takeovers.

Workers get this module by value, since they cannot import it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.support.servers.kafka_tools import produce_values
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

JOB = {
    "execution.runtime-mode": "STREAMING",
    "execution.checkpointing.interval": "200 ms",
    "parallelism.default": "2",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "20",
    "restart-strategy.fixed-delay.delay": "100 ms",
}
SCHEMA = pa.schema([("i", pa.int64()), ("name", pa.string())])


class Counting:
    """Passes rows on, and leaves a byte for each in a file: how many came through, whatever is reported."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        with open(os.path.join(self._folder, f"{os.getpid()}-{id(self)}"), "ab") as file:
            file.write(b"." * batch.num_rows)
        return batch


class Flow:
    """A topic that is filled for as long as the block lasts, and the job that copies it into a table.

    Args:
        rate: Rows in a second.
    """

    def __init__(self, folder: Path, kafka: str, topic: str, rate: float = 400.0) -> None:
        self.sent = 0
        self._folder, self._kafka, self._topic, self._rate = folder, kafka, topic, rate
        self._full = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._fill, daemon=True)
        self.counts = folder / "counts"
        self.counts.mkdir(parents=True)
        self.table = folder / "table"

    def copy(self, name: str) -> Flow:
        """The same topic, into a table of another folder; never entered."""
        return Flow(self._folder / name, self._kafka, self._topic, self._rate)

    def __enter__(self) -> Flow:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.fill_no_more()

    def fill_no_more(self) -> int:
        """The topic has all its rows: how many."""
        self._full.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure
        return self.sent

    def _fill(self) -> None:
        try:
            produce_values(self._kafka, self._topic, self._values(), rate=self._rate)
        except BaseException as error:  # raised by who joins
            self._failure = error

    def _values(self) -> Iterator[bytes]:
        while not self._full.is_set():
            yield json.dumps({"i": self.sent, "name": f"n{self.sent}"}).encode()
            self.sent += 1

    def request(self, request_id: str = "once", **config: str) -> SubmitRequest:
        """The job. `config`: of it, with ``_`` for ``.``."""
        values = {**JOB, **{key.replace("_", "."): value for key, value in config.items()}}
        env = us.Environment(values)
        source = us.KafkaSource(bootstrap_servers=self._kafka, topic=self._topic, schema=SCHEMA)
        rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "topic").uid("topic")
        counted = rows.map_batches(Counting(self.counts), returns=SCHEMA).uid("counted")
        counted.sink_to(us.DeltaSink(str(self.table))).uid("table")
        graph, code = env.job_graph("copied")
        artifact = pack(code, by_value=[sys.modules[__name__]])
        return SubmitRequest(graph=graph, artifact=artifact, config=values, request_id=request_id)

    # --- what has happened ------------------------------------------------------------------------

    @property
    def passed(self) -> int:
        """Rows that came through the job's function, in all attempts."""
        return sum(file.stat().st_size for file in self.counts.iterdir())

    @property
    def version(self) -> int:
        """Of the table; -1: there is none yet."""
        return max((int(file.stem) for file in (self.table / "_delta_log").glob("*.json")), default=-1)

    def numbers(self) -> list[int]:
        """Of all rows in the table, sorted; each is whole."""
        table = DeltaTable(str(self.table)).to_pyarrow_table()
        found = sorted(zip(table["i"].to_pylist(), table["name"].to_pylist(), strict=True))
        assert all(name == f"n{i}" for i, name in found)
        return [i for i, _ in found]

    @property
    def committed(self) -> int:
        """Rows in the table."""
        return 0 if self.version < 0 else DeltaTable(str(self.table)).to_pyarrow_table().num_rows

    def epochs(self) -> list[int]:
        """Of the leaders that decided the versions of the table, oldest first."""
        history = DeltaTable(str(self.table)).history()
        return [int(entry["unistream.leader-epoch"]) for entry in history[::-1] if _is_commit(entry)]

    def log(self) -> dict[str, bytes]:
        """The table's log."""
        return {file.name: file.read_bytes() for file in (self.table / "_delta_log").glob("*.json")}

    def await_commits(self, count: int = 2) -> float:
        """Until the table has so many more versions: the seconds that took."""
        before = self.version
        return eventually(
            lambda: self.version >= before + count, f"{count} versions after {before}", WAIT_S, 0.05
        )

    def assert_exact(self) -> None:
        """The table gets every row that was sent, once, and nothing else; epochs only grow."""
        sent = self.fill_no_more()
        eventually(lambda: self.committed >= sent, f"all {sent} rows are there", WAIT_S, 0.2)
        assert self.numbers() == list(range(sent))
        assert self.epochs() == sorted(self.epochs())


def _is_commit(entry: Mapping[str, Any]) -> bool:
    return "unistream.leader-epoch" in entry


def is_quiet(flow: Flow, quiet_s: float = 1.0) -> bool:
    """The table has no new version for so long."""
    before = flow.version
    time.sleep(quiet_s)
    return flow.version == before
