"""Rows of files, counted by key, into a table; the command line runs it from this folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa

import unistream as us

IN = pa.schema([("key", pa.string()), ("i", pa.int64())])
OUT = {"key": pa.string(), "i": pa.int64(), "count": pa.int64()}
FILES = 4
CODE_CANARY = "canary-in-the-code"


class Count(us.KeyedProcessFunction):
    """Each row, with how many of its key there have been."""

    def open(self, context: us.ProcessContext) -> None:
        self.count = context.state("count", pa.int64())

    def process_element(self, row: dict[str, Any], context: us.ProcessContext, out: us.Collector) -> None:
        self.count.update((self.count.value() or 0) + 1)
        assert row["key"] != CODE_CANARY
        out.emit({**row, "count": self.count.value()})


def build(env: us.Environment) -> None:
    """Of `KEYED_FILES`: its files below ``in``, its table ``out``."""
    folder = os.environ["KEYED_FILES"]
    source = us.FileSource(f"{folder}/in", format="json", schema=IN)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    counted = rows.key_by("key").process(Count(), returns=OUT).uid("count")
    counted.sink_to(us.DeltaSink(f"{folder}/out")).uid("table")


def write_rows(folder: Path, rows: int, key: str) -> None:
    """The files. `key`: of which keys are made."""
    (folder / "in").mkdir(parents=True)
    for number in range(FILES):
        mine = range(number, rows, FILES)
        lines = [json.dumps({"key": f"{key}-{i % 40}", "i": i}) for i in mine]
        (folder / "in" / f"{number}.json").write_text("\n".join(lines) + "\n")


def endless(env: us.Environment) -> None:
    """Rows of which there is no end, counted by key."""
    columns = {"key": us.datagen.Choice(["a", "b", "c"]), "i": us.datagen.Sequential()}
    source = us.DatagenSource(columns, rows=None, rows_per_second=50, bounded=False)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    rows.key_by("key").process(Count(), returns=OUT).uid("count").sink_to(us.BlackholeSink()).uid("out")


def some(env: us.Environment) -> None:
    """A few rows, counted by key."""
    columns = {"key": us.datagen.Choice(["a", "b", "c"]), "i": us.datagen.Sequential()}
    rows = env.from_source(
        us.DatagenSource(columns, rows=1_000), us.WatermarkStrategy.no_watermarks(), "rows"
    )
    counted = rows.uid("rows").key_by("key").process(Count(), returns=OUT).uid("count")
    counted.sink_to(us.BlackholeSink()).uid("out")
