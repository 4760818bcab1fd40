"""A range of a table whose job does not run, computed again on both engines and of several pipelines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.integration.crash_runs import in_the_gate
from unistream.cli.main import main

MINUTE = 60_000
RANGE = (10 * MINUTE, 20 * MINUTE)
ROWS = 6_000  # one each 300 ms: half an hour
SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.int64()), ("at", pa.timestamp("ms", "UTC"))])

PIPELINES = '''
import pyarrow as pa
import unistream as us

SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.int64()), ("at", pa.timestamp("ms", "UTC"))])

class Numbers(us.KeyedProcessFunction):
    """How many events of the key came before: it depends on all of the history."""
    seen = us.ValueStateDescriptor("seen", pa.int64())

    def process_element(self, row, context, out):
        seen = context.state(self.seen)
        out.emit({"id": row["id"], "before": seen.value() or 0, "at": row["at"]})
        seen.update((seen.value() or 0) + 1)

def rows(env):
    source = us.HybridSource(us.FileSource("history", split_bytes=1), us.StaticSource(SCHEMA.empty_table()))
    times = us.WatermarkStrategy.for_bounded_out_of_orderness(500).with_timestamp_column("at")
    return env.from_source(source, times, "rows").uid("rows")

def minutes(stream, slide="1 min"):
    windows = us.SlidingEventTimeWindows.of("2 min", slide)
    return stream.key_by("key").window(windows).aggregate(n=us.count(), last=us.max("id")).uid("minutes")

def tumbling(env):
    minutes(rows(env), "2 min").sink_to(us.DeltaSink("lake", partition_by=["key"])).uid("lake")

def overlapping(env):
    minutes(rows(env)).sink_to(us.DeltaSink("lake", time_column="window_end")).uid("lake")

def plain(env):
    stream = rows(env)
    even = stream.filter(lambda row: row["id"] % 2 == 0)
    even.sink_to(us.DeltaSink("lake", time_column="at")).uid("lake")
    minutes(stream).sink_to(us.DeltaSink("other")).uid("other")

def nothing(env):
    rows(env).filter(lambda row: False).sink_to(us.DeltaSink("lake", time_column="at")).uid("lake")

def numbered(env):
    columns = {"id": pa.int64(), "before": pa.int64(), "at": SCHEMA.field("at").type}
    numbers = rows(env).key_by("key").process(Numbers(), returns=columns).uid("numbers")
    numbers.sink_to(us.DeltaSink("lake", time_column="at")).uid("lake")
'''


def events(numbers: range) -> pa.Table:
    times = pa.array([i * 300 for i in numbers], pa.int64()).cast(SCHEMA.field("at").type)
    return pa.table({"id": list(numbers), "key": [i % 5 for i in numbers], "at": times}, schema=SCHEMA)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    (tmp_path / f"backfilled_{tmp_path.name}.py").write_text(PIPELINES)
    (tmp_path / "history").mkdir()
    for part in range(3):
        numbers = range(ROWS * part // 3, ROWS * (part + 1) // 3)
        pq.write_table(events(numbers), tmp_path / "history" / f"{part}.parquet", row_group_size=200)
    return tmp_path


def command(folder: Path, function: str, *words: str, target: str = "local") -> list[str]:
    reference = f"backfilled_{folder.name}:{function}"
    options = ("-t", target, "-p", "2", "-D", "spark.master=local[2]")
    if words[:1] == ("run",):
        return ["run", reference, *options, *words[1:]]
    times = ("--from", "1970-01-01T00:10:00Z", "--to", "1970-01-01T00:20:00Z")
    return ["backfill", "job", "--offline", "--pipeline", reference, *times, *options, "--json", *words]


FUNCTIONS = [("tumbling", "window_start"), ("overlapping", "window_end"), ("plain", "at"), ("numbered", "at")]


def content(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=str)


def spoil(path: Path, column: str) -> list[dict[str, Any]]:
    """Doubles all rows of the table that are in the range, and removes some. What the others are."""
    table = DeltaTable(str(path))
    found = table.to_pyarrow_table()
    low, high = (pa.scalar(at * 1000, pa.timestamp("us", "UTC")) for at in RANGE)
    inside = pc.and_(pc.greater_equal(found[column], low), pc.less(found[column], high))
    spoilt = found.filter(inside)
    assert 0 < spoilt.num_rows < found.num_rows
    write_deltalake(table, spoilt.slice(1), mode="append")
    return sorted(found.filter(pc.invert(inside)).to_pylist(), key=str)


@pytest.mark.parametrize(
    ("function", "column", "target"),
    [
        *((*one, "local") for one in FUNCTIONS),
        *(pytest.param(*one, "spark", marks=pytest.mark.spark) for one in in_the_gate(FUNCTIONS, 0, -1)),
    ],
)
def test_the_table_is_that_of_a_run_over_everything(
    folder: Path, capsys: pytest.CaptureFixture[str], function: str, column: str, target: str
) -> None:
    words = {"plain": ("--sink", "lake"), "numbered": ("--lookback", "1 h")}.get(function, ())
    assert main(command(folder, function, "run")) == 0
    wanted = content(folder / "lake")
    other = content(folder / "other") if function == "plain" else []
    spoil(folder / "lake", column)
    assert content(folder / "lake") != wanted
    capsys.readouterr()
    assert main(command(folder, function, *words, target=target)) == 0, capsys.readouterr().err
    done = json.loads(capsys.readouterr().out)
    assert (done["verdict"], done["job"]) == ("replaced", None)
    assert content(folder / "lake") == wanted
    assert done["rows_outside"] > 0 or function == "plain"
    if other:
        assert content(folder / "other") == other, "the other table gets nothing"


def test_a_range_without_results_is_emptied(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(folder, "plain", "run")) == 0
    others = spoil(folder / "lake", "at")
    capsys.readouterr()
    assert main(command(folder, "nothing")) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["rows_added"], done["rows_removed"] > 0) == (0, True)
    assert content(folder / "lake") == others


def test_a_function_that_fails_replaces_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(folder, "plain", "run")) == 0
    before = content(folder / "lake")
    module = folder / f"backfilled_{folder.name}_failing.py"
    module.write_text(PIPELINES.replace('lambda row: row["id"] % 2 == 0', "lambda row: 1 / 0"))
    capsys.readouterr()
    words = command(folder, "plain", "--sink", "lake")
    words[words.index("--pipeline") + 1] = f"{module.stem}:plain"
    assert main(words) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["verdict"] == "refused"
    assert "ZeroDivisionError" in said.err
    assert content(folder / "lake") == before
