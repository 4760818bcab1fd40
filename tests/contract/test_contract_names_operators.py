"""Names of columns in every operator: a job over columns with all odd names gives the rows that it should."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.names import ALL, BY_CASE, ODD, OURS
from unistream.base.errors import ConfigError
from unistream.connector.collect import CollectSink, read_collected
from unistream.model.columns.column_names import RESERVED, refused_names
from unistream.testing.mini_cluster import MiniCluster

OF_WINDOWS: Final = ("window_start", "window_end")
NAMES: Final = [
    *(name for name in ALL if refused_names([name]) is None and name not in (*RESERVED, *OF_WINDOWS)),
    *BY_CASE,
]
KEYS, VALUES = NAMES[::2], NAMES[1::2]
TABLE: Final = pa.table(
    {**{name: [n, n + 100] for n, name in enumerate(NAMES)}, "t": pa.array([1, 2], pa.int64())}
)
TIMES: Final = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("t")
NO_TIMES: Final = us.WatermarkStrategy.no_watermarks()
Found = dict[str, list[dict[str, Any]]]


TAGS: Final = [*(name for name in ODD.values() if name.isprintable() and 0 < len(name) <= 200), *BY_CASE]
TAGGED: Final = pa.schema([("tag", pa.string())])


class Pass(us.KeyedProcessFunction):
    """With a state, so that the key is stored; and a row for each side output."""

    seen = us.ValueStateDescriptor("seen", pa.int64())

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        context.state(self.seen).update(1)
        out.emit(row)
        for tag in TAGS:
            out.emit_side(tag, {"tag": tag})


def build(env: us.Environment, folder: Path) -> None:
    rows = env.from_source(us.StaticSource(TABLE, splits=2), TIMES, "rows").uid("rows")
    for name in NAMES:
        rows = rows.filter(us.col(name) >= us.lit(0))
    rows = rows.with_columns(**{name: us.col(name) + us.lit(1) for name in VALUES}).uid("computed")
    passed = rows.map(lambda row: row, returns=TABLE.schema).uid("mapped")
    sides = dict.fromkeys(TAGS, TAGGED)
    passed = passed.key_by(*NAMES).process(Pass(), returns=TABLE.schema, side_outputs=sides).uid("passed")
    tagged = [passed.get_side_output(tag).with_columns(read=us.lit(tag)).uid(f"of {tag}") for tag in TAGS]
    tagged[0].union(*tagged[1:]).sink_to(CollectSink(str(folder / "tagged"))).uid("tagged out")
    keyed = rows.key_by(*KEYS).window(us.TumblingEventTimeWindows.of(1_000))
    windows = keyed.aggregate(**{name: us.max(name) for name in VALUES}).uid("windows")
    dimension = env.from_source(us.StaticSource(TABLE.select(KEYS).slice(1)), NO_TIMES, "dimension")
    joined = rows.join(dimension.uid("dimension"), {name: name for name in KEYS}).uid("joined")
    for name, stream in {"passed": passed, "windows": windows, "joined": joined}.items():
        stream.select(*NAMES).uid(f"{name} names").sink_to(CollectSink(str(folder / name))).uid(f"{name} out")


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with MiniCluster(task_managers=1, slots=2) as started:
        yield started


@pytest.mark.parametrize(
    ("mode", "backend"), [("STREAMING", "hashmap"), ("STREAMING", "rocksdb"), ("BATCH", "hashmap")]
)
def test_operators_keep_the_names_of_columns(
    cluster: MiniCluster, tmp_path: Path, mode: str, backend: str
) -> None:
    options = {"execution.runtime-mode": mode, "state.backend.type": backend, "parallelism.default": "2"}
    env = us.Environment({**options, "execution.checkpointing.interval": "50 ms"})
    build(env, tmp_path)
    graph, code = env.job_graph("names")
    result = cluster.submit(graph, code, config=env.config.to_dict()).wait(WAIT_S)
    assert result.state == "FINISHED", result.failure
    want = [{n: row[n] + (n in VALUES) for n in NAMES} for row in TABLE.to_pylist()]
    first = NAMES[0]
    for name, rows in {"passed": want, "windows": want, "joined": want[1:]}.items():
        found = read_collected(str(tmp_path / name)).to_pylist()
        assert sorted(found, key=lambda row: row[first]) == rows, name
    tagged = [tuple(row.values()) for row in read_collected(str(tmp_path / "tagged")).to_pylist()]
    assert sorted(tagged) == sorted((tag, tag) for tag in TAGS for _ in range(TABLE.num_rows))


ROWS: Final = pa.schema([(name, pa.int64()) for name in (*NAMES, *RESERVED, *OF_WINDOWS)])


@pytest.mark.parametrize("name", [name for name in OURS if name in (*RESERVED, *OF_WINDOWS)])
def test_a_name_of_ours_is_refused_where_it_would_meet_it(name: str) -> None:
    env = us.Environment()
    times = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("50%")
    stream = env.from_source(us.StaticSource(ROWS.empty_table()), times, "rows").uid("rows")
    with pytest.raises(ConfigError, match=name):
        stream.key_by("50%").window(us.TumblingEventTimeWindows.of(10)).aggregate(**{name: us.count()})
    with pytest.raises(ConfigError, match=name):
        stream.key_by(name).window(us.TumblingEventTimeWindows.of(10)).aggregate(n=us.count())


def test_a_name_with_nul_is_refused_wherever_a_stream_has_it() -> None:
    env = us.Environment()
    rows = env.from_source(us.StaticSource(pa.table({"a": [1]})), NO_TIMES, "rows")
    for make in (
        lambda: env.from_source(us.StaticSource(pa.table({"a\0": [1]})), NO_TIMES, "others"),
        lambda: env.from_collection([{"a\0": 1}]),
        lambda: rows.map(lambda row: row, returns={"a\0": pa.int64()}),
        lambda: rows.with_columns(**{"a\0": us.col("a")}),
    ):
        with pytest.raises(ConfigError, match=r"column 'a\\x00', whose name"):
            make()


class Refuses:
    """Fails for one row."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == self._number:
            raise ValueError("not this one")
        return row


def test_dead_letters_have_the_names_of_their_operator(cluster: MiniCluster, tmp_path: Path) -> None:
    names = [*TAGS, "n" * 300]
    env = us.Environment({"execution.checkpointing.interval": "50 ms"})
    rows = env.from_source(us.StaticSource(pa.table({"n": range(len(names))})), NO_TIMES, "rows").uid("rows")
    letters = []
    for number, name in enumerate(names):
        rows = rows.map(Refuses(number), returns={"n": pa.int64()}, on_error="dead-letter")
        rows = rows.uid(name).name(name)
        letters.append(rows.get_side_output("dead-letters"))
    letters[0].union(*letters[1:]).sink_to(CollectSink(str(tmp_path / "letters"))).uid("letters of all")
    graph, code = env.job_graph("dead letters")
    result = cluster.submit(graph, code, config=env.config.to_dict()).wait(WAIT_S)
    assert result.state == "FINISHED", result.failure
    found = read_collected(str(tmp_path / "letters")).select(["operator_uid", "operator"]).to_pylist()
    assert sorted(tuple(row.values()) for row in found) == sorted((name, name) for name in names)
    assert result.dead_letters == dict.fromkeys(sorted(names), 1)
