"""Which columns a pipeline uses of its sources, and that it gives the same rows as with all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import unistream as us
from tests.eventually import WAIT_S
from unistream.api.stream import DataStream
from unistream.port.operator import SourceOperatorSpec
from unistream.port.projection import ReadsColumns
from unistream.testing.mini_cluster import MiniCluster

NAMES = ["a", "b", "c", "d", "at"]
ROWS = [{"a": i, "b": i % 3, "c": f"t{i}", "d": i * 0.5, "at": 1_000 * i} for i in range(40)]
SCHEMA = pa.schema(
    [("a", pa.int64()), ("b", pa.int64()), ("c", pa.string()), ("d", pa.float64()), ("at", pa.int64())]
)
TIMES = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
NO_TIMES = us.WatermarkStrategy.no_watermarks()
Pipeline = Callable[[DataStream], DataStream]


def file_of(folder: Path, form: str) -> us.FileSource:
    path = folder / f"rows.{form}"
    match form:
        case "parquet":
            pq.write_table(pa.Table.from_pylist(ROWS, SCHEMA), path)
        case "json":
            path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
        case _:
            lines = [",".join(NAMES), *(",".join(str(row[name]) for name in NAMES) for row in ROWS)]
            path.write_text("\n".join(lines))
    return us.FileSource(str(path), format=form, schema=SCHEMA, in_order=True)  # type: ignore[arg-type]


def read_by(env: us.Environment) -> list[list[str]]:
    """Columns that each source gives."""
    specs = [n.operator for n in env.stream_graph("x").nodes if isinstance(n.operator, SourceOperatorSpec)]
    return [spec.source.schema.names for spec in specs]


def windowed(stream: DataStream, key: Callable[[Any], Any] | None = None) -> Any:
    keyed = stream.key_by("b") if key is None else stream.key_by(key, returns=pa.string())
    return keyed.window(us.TumblingEventTimeWindows.of("10 s"))


def late_rows(stream: DataStream) -> DataStream:
    found = windowed(stream).side_output_late_data("late").aggregate(n=us.count())
    found.get_side_output("late").sink_to(us.BlackholeSink()).uid("late")
    return found.select("b", "n")


def split_and_select(stream: DataStream) -> DataStream:
    rest = stream.side_output("large", us.col("a") > 30)
    large = rest.get_side_output("large").select("d", x="b")
    return rest.select("d", x="b").union(large)


PIPELINES: dict[str, tuple[Pipeline, us.WatermarkStrategy, Sequence[str]]] = {
    "select": (lambda s: s.select("c", "a"), NO_TIMES, ["a", "c"]),
    "select with an expression": (lambda s: s.select(x=us.col("a") + us.col("b")), NO_TIMES, ["a", "b"]),
    "select what was renamed": (lambda s: s.select(a="d").select("a"), NO_TIMES, ["d"]),
    "select nothing of the source": (lambda s: s.select(one=us.lit(1)), NO_TIMES, ["a"]),
    "filter, then select": (lambda s: s.filter(us.col("d") > 3).select("a"), NO_TIMES, ["a", "d"]),
    "filter alone": (lambda s: s.filter(us.col("d") > 3), NO_TIMES, NAMES),
    "with_columns, then select": (
        lambda s: s.with_columns(d=us.col("b") * 2, e=us.col("c")).select("d", "a"),
        NO_TIMES,
        ["a", "b", "c"],
    ),
    "the time of the watermarks": (lambda s: s.select("a"), TIMES, ["a", "at"]),
    "a window": (lambda s: windowed(s).aggregate(n=us.count(), x=us.sum("a")), TIMES, ["a", "b", "at"]),
    "a window whose late rows nobody reads": (
        lambda s: windowed(s).side_output_late_data("late").aggregate(n=us.count()),
        TIMES,
        ["b", "at"],
    ),
    "a window whose late rows are read": (late_rows, TIMES, NAMES),
    "a filter before a window": (
        lambda s: windowed(s.filter(us.col("c") != "t7")).aggregate(n=us.count()),
        TIMES,
        ["b", "c", "at"],
    ),
    "times assigned later": (
        lambda s: windowed(
            s.select("b", t="at").assign_timestamps_and_watermarks(
                us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("t")
            )
        ).aggregate(n=us.count()),
        NO_TIMES,
        ["b", "at"],
    ),
    "a side output": (split_and_select, NO_TIMES, ["a", "b", "d"]),
    "a function of the row": (lambda s: s.filter(lambda row: row["a"] > 3).select("b"), NO_TIMES, NAMES),
    "a function of the batch": (lambda s: s.map_batches(lambda b: b.select(["a"])), NO_TIMES, NAMES),
    "a key by a function": (
        lambda s: windowed(s, lambda row: row["c"]).aggregate(n=us.count()),
        TIMES,
        NAMES,
    ),
}


@pytest.mark.parametrize("form", ["json", "parquet", "csv"])
@pytest.mark.parametrize(("pipeline", "times", "wanted"), PIPELINES.values(), ids=PIPELINES)
def test_a_source_gives_what_is_used_and_the_result_is_that_of_all_columns(  # noqa: PLR0917
    cluster: MiniCluster,
    tmp_path: Path,
    pipeline: Pipeline,
    times: us.WatermarkStrategy,
    wanted: Sequence[str],
    form: str,
) -> None:
    env = us.Environment()
    stream = pipeline(env.from_source(file_of(tmp_path, form), times, "rows").uid("rows"))
    stream.sink_to(us.BlackholeSink()).uid("sink")
    assert read_by(env) == [list(wanted)]
    if form == "json":
        whole = us.StaticSource(pa.Table.from_pylist(ROWS, SCHEMA))
        both = [
            written(cluster, tmp_path / name, source, pipeline, times)
            for name, source in (("narrow", file_of(tmp_path, form)), ("whole", whole))
        ]
        assert both[0] == both[1] != []


def written(
    cluster: MiniCluster, folder: Path, source: Any, pipeline: Pipeline, times: us.WatermarkStrategy
) -> list[str]:
    env = us.Environment({"execution.runtime-mode": "BATCH", "parallelism.default": "1"})
    pipeline(env.from_source(source, times, "rows").uid("rows")).sink_to(us.FileSink(str(folder))).uid("sink")
    result = cluster.submit(*env.job_graph("written")).wait(WAIT_S)
    assert result.state == "FINISHED", result.failure
    return sorted(str(row) for path in folder.glob("part-*") for row in pq.read_table(path).to_pylist())


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with MiniCluster(task_managers=1, slots=1) as found:
        yield found


def test_two_readers_of_a_source_get_what_each_needs(tmp_path: Path) -> None:
    env = us.Environment()
    rows = env.from_source(file_of(tmp_path, "json"), NO_TIMES, "rows")
    rows.select("a").sink_to(us.BlackholeSink())
    rows.filter(us.col("b") == 1).select("c").sink_to(us.BlackholeSink())
    assert read_by(env) == [["a", "b", "c"]]
    assert "without d, at, which nobody uses" in env.explain()
    rows.sink_to(us.BlackholeSink())
    assert read_by(env) == [NAMES]


def test_a_source_whose_side_output_is_read_still_leaves_out_columns() -> None:
    env = us.Environment()
    source = us.KafkaSource(
        bootstrap_servers="127.0.0.1:1", topic="t", schema=SCHEMA, on_bad_record="dead-letter"
    )
    rows = env.from_source(source, NO_TIMES, "rows").uid("rows")
    rows.select("c").sink_to(us.BlackholeSink()).uid("sink")
    rows.dead_letters_to(us.BlackholeSink())
    assert read_by(env) == [["c"]]


def test_both_parts_of_a_hybrid_source_leave_out_the_same_columns(tmp_path: Path) -> None:
    live = us.KafkaSource(bootstrap_servers="127.0.0.1:1", topic="t", schema=SCHEMA)
    source = us.HybridSource(file_of(tmp_path, "parquet"), live, fence=10_000, timestamp_column="at")
    env = us.Environment()
    env.from_source(source, NO_TIMES, "rows").select("c").sink_to(us.BlackholeSink())
    assert read_by(env) == [["c", "at"]]


def test_a_bad_value_of_an_unused_column_is_as_bad(cluster: MiniCluster, tmp_path: Path) -> None:
    for form, line in (("json", '{"a": 1, "c": 5}'), ("csv", "1,2,x,no number,5")):
        source = file_of(tmp_path, form)
        path = tmp_path / f"rows.{form}"
        path.write_text(path.read_text().rstrip("\n") + f"\n{line}\n")
        env = us.Environment({"execution.runtime-mode": "BATCH", "parallelism.default": "1"})
        env.from_source(source, NO_TIMES, "rows").select("a").sink_to(us.BlackholeSink())
        result = cluster.submit(*env.job_graph("bad")).wait(WAIT_S)
        assert result.state == "FAILED"
        assert "rows." in str(result.failure)


def test_what_a_source_gives_is_what_it_was_asked_for(tmp_path: Path) -> None:
    for form in ("json", "parquet", "csv"):
        source = file_of(tmp_path, form)
        assert isinstance(source, ReadsColumns)
        narrow = source.reading(frozenset({"d", "a"}))
        assert narrow.schema.names == ["a", "d"]
        assert source.schema.names == NAMES
        assert narrow.info() == source.info()


@pytest.mark.parametrize("operator", ["with_columns", "select", "filter", "side_output", "timestamps"])
@pytest.mark.parametrize(
    ("reads", "columns"),
    [
        pytest.param(True, NAMES, id="dead letters have whole rows"),
        pytest.param(False, ["a"], id="without a reader of letters only what is used"),
    ],
)
def test_operators_with_dead_letters(operator: str, reads: bool, columns: list[str], tmp_path: Path) -> None:
    env = us.Environment()
    stream = env.from_source(file_of(tmp_path, "parquet"), NO_TIMES, "rows").uid("rows")
    number = us.col("a").cast("string").cast("int64")
    failing = {
        "with_columns": lambda: stream.with_columns(a=number, on_error="dead-letter"),
        "select": lambda: stream.select(a=number, on_error="dead-letter"),
        "filter": lambda: stream.filter(number > 3, on_error="dead-letter"),
        "side_output": lambda: stream.side_output("large", number > 3, on_error="dead-letter"),
        "timestamps": lambda: stream.assign_timestamps_and_watermarks(TIMES, on_error="dead-letter"),
    }[operator]()
    failing.select("a").sink_to(us.BlackholeSink()).uid("out")
    if reads:
        failing.get_side_output("dead-letters").select("error").sink_to(us.BlackholeSink()).uid("letters")
    timed = ["at"] if operator == "timestamps" and not reads else []
    assert read_by(env) == [[*columns, *timed]]


A, B = us.col("a"), us.col("b")


def two_filters(stream: DataStream) -> DataStream:
    """Of which each row is in at least one."""
    stream.filter(A > 30).sink_to(us.BlackholeSink())
    return stream.filter(A < 3)


def a_reader_of_all_rows(stream: DataStream) -> DataStream:
    stream.sink_to(us.BlackholeSink())
    return stream.filter(A < 3)


def what_a_filter_drops_is_read(stream: DataStream) -> DataStream:
    return stream.side_output("small", A < 3)


SELECTING: dict[str, tuple[Pipeline, str | None]] = {
    "a filter": (lambda s: s.filter(A > 30), "(a > 30)"),
    "two filters": (lambda s: s.filter(A > 30).filter(B == 1), "((a > 30) and (b == 1))"),
    "behind a projection, which may compute it": (lambda s: s.select("a").filter(A > 30), None),
    "the second of them behind one": (lambda s: s.filter(A > 30).select("a").filter(A > 3), "(a > 30)"),
    "two readers": (two_filters, "((a > 30) or (a < 3))"),
    "a reader of all rows": (a_reader_of_all_rows, None),
    "a side output": (what_a_filter_drops_is_read, None),
    "rows that fail are letters": (lambda s: s.filter(A > 30, on_error="dead-letter"), None),
    "rows that fail are counted": (lambda s: s.filter(A > 30, on_error="skip"), None),
    "a function of the row": (lambda s: s.filter(lambda row: row["a"] > 3), None),
    "a function of the batch": (lambda s: s.filter_batches(lambda b: pc.greater(b["a"], 3)), None),
    "none": (lambda s: s.select("a"), None),
}


def selected_by(env: us.Environment) -> list[str | None]:
    """What each source of files need read alone."""
    specs = [n.operator for n in env.stream_graph("x").nodes if isinstance(n.operator, SourceOperatorSpec)]
    found = [spec.source._selection for spec in specs if hasattr(spec.source, "_selection")]
    return [None if one is None else str(one.expression) for one in found]


@pytest.mark.parametrize(("pipeline", "wanted"), SELECTING.values(), ids=SELECTING)
def test_a_source_need_not_read_what_all_its_readers_drop(
    cluster: MiniCluster, tmp_path: Path, pipeline: Pipeline, wanted: str | None
) -> None:
    env = us.Environment()
    pipeline(env.from_source(file_of(tmp_path, "parquet"), TIMES, "rows")).sink_to(us.BlackholeSink())
    assert selected_by(env) == [wanted]
    assert (f"where {wanted}, as far as statistics say" in env.explain()) is (wanted is not None)
    sources = (file_of(tmp_path, "parquet"), us.StaticSource(pa.Table.from_pylist(ROWS, SCHEMA)))
    pq.write_table(pa.Table.from_pylist(ROWS, SCHEMA), tmp_path / "rows.parquet", row_group_size=4)
    both = [written(cluster, tmp_path / str(n), one, pipeline, TIMES) for n, one in enumerate(sources)]
    assert both[0] == both[1] != []


def test_a_long_condition_is_cut_off_where_it_is_shown(tmp_path: Path) -> None:
    env = us.Environment()
    rows = env.from_source(file_of(tmp_path, "parquet"), TIMES, "rows")
    rows.filter(us.col("c") == "x" * 1_000).sink_to(us.BlackholeSink())
    [line] = [line for line in env.explain().splitlines() if "where (c ==" in line]
    assert 200 < len(line) < 300
    assert "…, as far as statistics say" in line


def test_rows_that_are_dropped_move_the_watermark_of_an_endless_stream(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    write_deltalake(folder, pa.Table.from_pylist(ROWS, SCHEMA))
    for bounded, times, wanted in (
        (True, TIMES, "(a > 30)"),
        (False, TIMES, None),
        (False, NO_TIMES, "(a > 30)"),
    ):
        env = us.Environment()
        source = us.DeltaSource(str(folder), bounded=bounded)
        env.from_source(source, times, "rows").filter(A > 30).sink_to(us.BlackholeSink())
        assert selected_by(env) == [wanted]


CODE_OF = """
import hashlib, sys
import pyarrow as pa
import unistream as us
from unistream.worker.code import pack
schema = pa.schema([(name, pa.int64()) for name in "abcdefghij"])
kafka = us.KafkaSource(bootstrap_servers="127.0.0.1:1", topic="t", schema=schema)
env = us.Environment()
for name, source in (("kafka", kafka), ("files", us.FileSource(sys.argv[1], format="json", schema=schema))):
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), name).uid(name)
    selected = rows.filter(us.col("i") > us.col("b")).select("j", "c", "a", "f", "h")
    selected.sink_to(us.BlackholeSink()).uid(f"{name}-sink")
print(hashlib.sha256(pack(env.job_graph("x")[1])).hexdigest())
"""


def test_a_pipeline_is_the_same_code_in_every_process(tmp_path: Path) -> None:
    """Otherwise the next start of the same pipeline would be taken for another version of it."""
    (tmp_path / "rows.json").write_text('{"a": 1}')
    found = {
        subprocess.run(
            [sys.executable, "-c", CODE_OF, str(tmp_path / "rows.json")],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1
