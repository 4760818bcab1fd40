"""Writers and committers of sinks to one table, without a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

import unistream as us
from tests.contract.sinks.case import context, permit, request
from tests.iceberg_lake import TABLE, Lake
from unistream.base.ids import CheckpointId
from unistream.connector.common import Unknown
from unistream.connector.iceberg.committer import IcebergCommitter
from unistream.connector.iceberg.table import IcebergSinkTable
from unistream.model.elements import Batch
from unistream.port.sink import CommitResult, Committer, SinkWriter


def rows(**columns: Any) -> Batch:
    return Batch(pa.RecordBatch.from_pydict(columns))


class Parts:
    """`close` closes all of them."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.made: list[SinkWriter | Committer] = []

    def sink(self, table: str = TABLE, **options: Any) -> us.IcebergSink:
        return us.IcebergSink(table, catalog_properties=self.lake.properties, **options)

    def writer(
        self, sink: us.IcebergSink | None = None, state: Sequence[bytes] = (), **where: Any
    ) -> SinkWriter:
        made = (sink or self.sink()).create_writer()
        self.made.append(made)
        made.open(context(**where), state)
        return made

    def committer(
        self,
        sink: us.IcebergSink | None = None,
        state: Sequence[bytes] = (),
        tables: type[IcebergSinkTable] = IcebergSinkTable,
        attempts: int = 4,
        **where: Any,
    ) -> IcebergCommitter:
        made = (sink or self.sink()).create_committer()
        assert isinstance(made, IcebergCommitter)
        made = IcebergCommitter(
            made._address,
            allow_rewind=made._allow_rewind,
            append_to_foreign=made._append_to_foreign,
            tables=tables,
            attempts=attempts,
        )
        self.made.append(made)
        made.restore_state(state)
        made.open(context(**where))
        return made

    def staged(
        self, checkpoint: int, batch: Batch, writer: SinkWriter | None = None, **options: Any
    ) -> list[bytes]:
        """The committables of one writer."""
        writer = writer or self.writer(self.sink(**options))
        writer.write(batch)
        writer.flush(end_of_input=False)
        return list(writer.prepare_commit(CheckpointId(checkpoint)))

    def add(
        self, checkpoint: int, batch: Batch, sink: us.IcebergSink | None = None, **where: Any
    ) -> CommitResult:
        """Staged and committed, by a committer that is there before the rows, as in a job."""
        sink = sink or self.sink()
        committer = self.committer(sink, **where)
        committables = self.staged(checkpoint, batch, self.writer(sink, **where))
        return committer.commit(permit(checkpoint), request(checkpoint, *committables))

    def close(self) -> None:
        for one in self.made:
            one.close()


def between(act: Callable[[], None], times: int = 1) -> type[IcebergSinkTable]:
    """A table in which somebody else does something between each look and the commit, `times` times."""
    left = [times]

    class Interfered(IcebergSinkTable):
        def commit(self, updates: tuple[Any, ...], requirements: tuple[Any, ...]) -> None:
            if left[0]:
                left[0] -= 1
                act()
            super().commit(updates, requirements)

    return Interfered


def answerless(*, happens: bool, times: int) -> type[IcebergSinkTable]:
    """A table whose catalog does not answer the first `times` commits."""
    left = [times]

    class Answerless(IcebergSinkTable):
        def commit(self, updates: tuple[Any, ...], requirements: tuple[Any, ...]) -> None:
            if not left[0]:
                super().commit(updates, requirements)
                return
            left[0] -= 1
            if happens:
                super().commit(updates, requirements)
            raise Unknown("connection reset")

    return Answerless
