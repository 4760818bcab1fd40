"""Row by row: the table that the job wrote against the truth computed from the files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Difference:
    """Result rows that are missing, there more than once, not expected at all, or have other values."""

    rows: int
    lost: int
    duplicated: int
    unexpected: int
    wrong: int

    @property
    def is_none(self) -> bool:
        return not (self.lost or self.duplicated or self.unexpected or self.wrong)

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows: {self.lost} lost, {self.duplicated} duplicated, "
            f"{self.unexpected} unexpected, {self.wrong} with other values"
        )


def compare(actual: pa.Table, truth: pa.Table, *, keys: Sequence[str], values: Sequence[str]) -> Difference:
    """Matches `actual` with `truth` by `keys`, then looks at `values`; both hold the named columns."""
    on = " AND ".join(f"a.{k} IS NOT DISTINCT FROM t.{k}" for k in keys)
    same = " AND ".join(f"a.{v} IS NOT DISTINCT FROM t.{v}" for v in values)
    by = ", ".join(keys)
    with duckdb.connect() as connection:
        connection.register("actual", _without_zone(actual))
        connection.register("truth", _without_zone(truth))
        connection.sql(
            f"CREATE TABLE a AS SELECT {by}, count(*) AS copies, "
            + ", ".join(f"any_value({v}) AS {v}" for v in values)
            + f" FROM actual GROUP BY {by}"
        )
        (row,) = connection.sql(f"""
            SELECT (SELECT count(*) FROM actual),
                   (SELECT count(*) FROM truth t WHERE NOT EXISTS (SELECT 1 FROM a WHERE {on})),
                   (SELECT coalesce(sum(copies - 1), 0) FROM a),
                   (SELECT count(*) FROM a WHERE NOT EXISTS (SELECT 1 FROM truth t WHERE {on})),
                   (SELECT count(*) FROM a JOIN truth t ON {on} WHERE NOT ({same}))
        """).fetchall()
    return Difference(*(int(n) for n in row))


def _without_zone(table: pa.Table) -> pa.Table:
    """Timestamps as microseconds without a zone (all are UTC), so that both sides compare."""
    fields = [
        pa.field(f.name, pa.timestamp("us")) if pa.types.is_timestamp(f.type) else f for f in table.schema
    ]
    return table.cast(pa.schema(fields))
