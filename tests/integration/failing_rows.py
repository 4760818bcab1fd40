"""A pipeline with operators that fail for some rows: functions, an expression, a key and keyed state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

import unistream as us
from unistream.operator.common import decoded_row

ROWS = 10_000
KEYS = 7
PARSED = pa.schema([("id", pa.int64()), ("key", pa.int64()), ("fare", pa.int64())])
COUNTED = pa.schema([*PARSED, ("seen", pa.int64())])


def texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Every 10th fare is no number for the expression, every 11th none for the function; every 13th row of
    a key fails behind the change of its state."""
    ids = batch.column("id").to_pylist()
    fares = ["free" if i % 10 == 3 else f"{i}" for i in ids]
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "text": pa.array(fares)})


def parsed(row: dict[str, Any]) -> dict[str, Any]:
    if row["id"] % 11 == 5:
        raise KeyError("fare")
    return {"id": row["id"], "key": row["id"] % KEYS, "fare": row["number"]}


class Counts(us.KeyedProcessFunction):
    """`seen` counts the rows of the key that did not fail."""

    seen = us.ValueStateDescriptor("seen", pa.int64())

    def process_element(self, row: dict[str, Any], context: Any, out: Any) -> None:
        seen = context.state(self.seen)
        seen.update((seen.value() or 0) + 1)
        out.emit({**row, "seen": seen.value()})
        if row["id"] % 13 == 4:
            raise ValueError(f"row {row['id']}")


def letters_of(i: int) -> str | None:
    """The operator that fails for row `i`; None: no one does."""
    if i % 10 == 3:
        return "numbers"
    if i % 11 == 5:
        return "parsed"
    return "counted" if i % 13 == 4 else None


def failing(env: us.Environment, lake: Path, *, rows_per_second: int | None = None) -> None:
    source = us.DatagenSource({"id": us.datagen.Sequential()}, rows=ROWS, rows_per_second=rows_per_second)
    numbers = (
        env.from_source(source, us.WatermarkStrategy.no_watermarks(), "ids")
        .uid("ids")
        .map_batches(texts, returns={"id": pa.int64(), "text": pa.string()})
        .with_columns(number=us.col("text").cast("int64"), on_error="dead-letter")
        .uid("numbers")
        .name("numbers")
    )
    rows = numbers.map(parsed, returns=PARSED, on_error="dead-letter").uid("parsed").name("parsed")
    counted = (
        rows.key_by("key").process(Counts(), returns=COUNTED, on_error="dead-letter").uid("counted")
    ).name("counted")
    letters = [one.get_side_output("dead-letters") for one in (numbers, rows, counted)]
    counted.sink_to(us.DeltaSink(str(lake / "rows"))).uid("rows")
    letters[0].union(*letters[1:]).sink_to(us.DeltaSink(str(lake / "letters"))).uid("letters")


def check(lake: Path) -> None:
    """Each row is in one of the two tables, once, and failed calls have left no state."""
    rows = DeltaTable(str(lake / "rows")).to_pyarrow_table().to_pylist()
    expected = [i for i in range(ROWS) if letters_of(i) is None]
    assert sorted(row["id"] for row in rows) == expected
    for key in range(KEYS):
        seen = sorted(row["seen"] for row in rows if row["key"] == key)
        assert seen == list(range(1, len(seen) + 1))
    letters = DeltaTable(str(lake / "letters")).to_pyarrow_table()
    found = sorted(
        (decoded_row(letter["row_ipc"]).column("id")[0].as_py(), letter["operator_uid"])
        for letter in letters.to_pylist()
    )
    assert found == [(i, uid) for i in range(ROWS) if (uid := letters_of(i)) is not None]
    assert len(pc.unique(letters["letter"])) == len(found)
    assert pc.unique(letters["attempt"]).to_pylist() == [1]


def counts() -> dict[str, int]:
    """Letters by operator."""
    found: dict[str, int] = {}
    for i in range(ROWS):
        if (uid := letters_of(i)) is not None:
            found[uid] = found.get(uid, 0) + 1
    return found
