"""Rows of a whole table, without counting its log after each commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import unistream as us
from unistream.connector.delta.row_total import RowTotal


@dataclass
class Snapshot:
    """Of a log that notes how often it was counted."""

    version: int
    rows: int | None
    counts: list[int] = field(default_factory=list)

    def row_count(self) -> int | None:
        self.counts.append(self.version)
        return self.rows


def test_the_log_is_counted_once_while_nobody_else_writes() -> None:
    total, counts = RowTotal(), list[int]()
    found = [total.appended(Snapshot(at, 100, counts), at + 1, 5) for at in range(3)]
    assert found == [105, 110, 115]
    assert counts == [0]


@pytest.mark.parametrize(
    ("commits", "expected", "counts"),
    [
        pytest.param([(0, 1, 5), (2, 3, 5)], [105, 105], [0, 2], id="somebody else wrote in between"),
        pytest.param([(0, 1, 5), (0, 1, 5)], [105, 105], [0, 0], id="the same version again"),
    ],
)
def test_it_is_counted_again(
    commits: list[tuple[int, int, int]], expected: list[int], counts: list[int]
) -> None:
    total, seen = RowTotal(), list[int]()
    assert [total.appended(Snapshot(at, 100, seen), to, rows) for at, to, rows in commits] == expected
    assert seen == counts


def test_what_is_not_known_stays_so_until_somebody_has_counted() -> None:
    total = RowTotal()
    assert total.appended(Snapshot(0, None), 1, 5) is None
    assert total.appended(Snapshot(1, None), 2, 5) is None
    assert total.replaced(Snapshot(3, 7)) == 7
    assert total.appended(Snapshot(3, None), 4, 5) == 12


ROWS = pa.schema([("id", pa.int64()), ("n", pa.int64())])


@pytest.mark.parametrize(
    ("options", "after"),
    [
        pytest.param({"on_foreign": "append"}, 6, id="append"),
        pytest.param({"mode": "upsert", "key": ["id"], "on_foreign": "append"}, 4, id="upsert"),
        pytest.param({"mode": "overwrite-partitions", "on_foreign": "append"}, 3, id="overwrite"),
    ],
)
def test_a_job_counts_the_rows_of_others_too(tmp_path: Path, options: dict[str, object], after: int) -> None:
    table = str(tmp_path / "table")
    write_deltalake(table, pa.table({"id": [1, 2, 3], "n": [0, 0, 0]}, schema=ROWS))
    env = us.Environment({"parallelism.default": "1"}, target="local")
    rows = [{"id": number, "n": 1} for number in (2, 3, 4)]
    sink = us.DeltaSink(table, **options)  # type: ignore[arg-type]
    env.from_collection(rows, ROWS).uid("rows").sink_to(sink).uid("lake")
    result = env.execute("rows")
    assert DeltaTable(table).to_pyarrow_table().num_rows == after
    assert result.sinks["lake"].table_rows == after
