"""A bootstrap, stage by stage in this process, and the stream that goes on from its savepoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.modes import STREAMING
from tests.support.harness.stages import bootstrap_in_stages
from unistream.api.bootstrap import BootstrapOrder
from unistream.base.errors import ConfigError
from unistream.model.manifest_files import referenced_files
from unistream.model.snapshot import Manifest
from unistream.storage.savepoint_folder import state_folder_of
from unistream.testing.mini_cluster import MiniCluster

FENCE = 1_000
BOTH = 100
END = 2_000
GAP = 25
SESSION = pa.schema([("user", pa.int64()), ("until", pa.int64()), ("rows", pa.int64())])


class Sessions(us.KeyedProcessFunction):
    count = us.ValueStateDescriptor("count", pa.int64())
    until = us.ValueStateDescriptor("until", pa.int64())

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        count, until = context.state(self.count), context.state(self.until)
        if until.value() is not None:
            context.delete_event_time_timer(until.value())
            if context.timestamp > until.value():  # a stream's watermark may come later
                self.on_timer(until.value(), context, out)
        count.update((count.value() or 0) + 1)
        until.update(context.timestamp + GAP)
        context.register_event_time_timer(context.timestamp + GAP)

    def on_timer(self, timestamp: int, context: us.ProcessContext, out: us.Collector) -> None:
        out.emit({"user": context.key, "until": timestamp, "rows": context.state(self.count).value()})
        context.state(self.count).clear()
        context.state(self.until).clear()


def at(number: int) -> int:
    """Users come in bursts, with pauses after which a session ends."""
    return number + number // 50 * 40


def rows(first: int, end: int) -> pa.Table:
    numbers = [n for n in range(END) if first <= at(n) < end]
    return pa.table({"id": numbers, "user": [n % 5 for n in numbers], "at": [at(n) for n in numbers]})


def source(**options: Any) -> us.HybridSource:
    """Some rows are in both parts. The history is not in the order of time."""
    history = rows(0, FENCE + BOTH)
    mixed = history.take([(i * 7) % len(history) for i in range(len(history))])
    return us.HybridSource(us.StaticSource(mixed), us.StaticSource(rows(FENCE - BOTH, 10**6)), **options)


def build(env: us.Environment, out: Path, **options: Any) -> None:
    fenced = {"fence": FENCE, "timestamp_column": "at"} | options
    times = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    read = env.from_source(source(**fenced), times, "rows").uid("rows")
    names = env.from_collection(pa.table({"user": range(5), "name": list("abcde")}), name="names").uid(
        "names"
    )
    named = read.join(names, on="user").uid("named")
    named.sink_to(us.FileSink(str(out / "rows"))).uid("kept")
    keyed = named.key_by("user")
    keyed.process(Sessions(), returns=SESSION).uid("sessions").sink_to(
        us.FileSink(str(out / "sessions"))
    ).uid("ended")
    for name, windows in {
        "tumbling": us.TumblingEventTimeWindows.of("300 ms"),
        "sliding": us.SlidingEventTimeWindows.of("400 ms", "100 ms"),
    }.items():
        counted = keyed.window(windows).aggregate(n=us.count(), last=us.max("at")).uid(name)
        counted.sink_to(us.FileSink(str(out / name))).uid(f"{name}-sink")


def bootstrap(
    folder: Path, *, parallelism: int = 2, commits: bool = True, copies: bool = False, **config: str
) -> Manifest:
    env = us.Environment({"parallelism.default": str(parallelism), **config})
    build(env, folder / "out")
    (folder / "tmp").mkdir(exist_ok=True)
    graph, code, _ = env.staged_job_graph("history", BootstrapOrder.of(folder / "START", FENCE))
    return bootstrap_in_stages(graph, code, folder / "tmp", commits=commits, copies=copies)


def stream(folder: Path, *, parallelism: int = 2, **config: str) -> None:
    env = us.Environment({"parallelism.default": str(parallelism), **STREAMING, **config})
    build(env, folder / "out")
    go_on(env, folder / "START")


def go_on(env: us.Environment, savepoint: Path) -> None:
    graph, code = env.job_graph("rest")
    with MiniCluster(1, 4) as cluster:
        job = cluster.submit(graph, code, config=env.config.to_dict(), savepoint=str(savepoint))
        result = job.wait(WAIT_S)
    assert result.state == "FINISHED", result.failure
    assert result.late_rows == {}


def written(folder: Path, name: str) -> list[str]:
    return sorted(map(str, ds.dataset(str(folder / "out" / name)).to_table().to_pylist()))


def sessions() -> Counter[tuple[int, int, int]]:
    found: Counter[tuple[int, int, int]] = Counter()
    for user in range(5):
        times = [at(n) for n in range(END) if n % 5 == user]
        count = 0
        for time, following in zip(times, [*times[1:], 10**9], strict=True):
            count += 1
            if following > time + GAP:
                found[user, time + GAP, count] += 1
                count = 0
    return found


def windows(size: int, slide: int) -> dict[tuple[int, int], int]:
    found: Counter[tuple[int, int]] = Counter()
    for n in range(END):
        last = at(n) // slide * slide
        for start in range(last, last - size, -slide):
            found[n % 5, start] += 1
    return dict(found)


def check(folder: Path) -> None:
    """As plain Python counts them: each row, session and window once."""
    table = {name: ds.dataset(str(folder / "out" / name)).to_table() for name in ("rows", "sessions")}
    assert sorted(table["rows"]["id"].to_pylist()) == list(range(END))
    ended = table["sessions"].to_pylist()
    assert Counter((row["user"], row["until"], row["rows"]) for row in ended) == sessions()
    for name, size, slide in (("tumbling", 300, 300), ("sliding", 400, 100)):
        counted = ds.dataset(str(folder / "out" / name)).to_table().to_pylist()
        by_window = {(r["user"], round(r["window_start"].timestamp() * 1000)): r["n"] for r in counted}
        assert len(by_window) == len(counted), "a window came twice"
        assert by_window == windows(size, slide)


@pytest.mark.parametrize(
    ("before", "after", "backend"),
    [(2, 3, "hashmap"), (3, 1, "hashmap"), (1, 2, "hashmap"), (2, 2, "rocksdb")],
)
def test_history_and_the_rest_are_the_rows_of_one_stream(
    before: int, after: int, backend: str, tmp_path: Path
) -> None:
    bootstrap(tmp_path, parallelism=before, **{"state.backend.type": backend})
    visible = ds.dataset(str(tmp_path / "out" / "rows")).to_table()["at"].to_pylist()
    assert 0 < max(visible) < FENCE, "the history is in the sinks, and no live row"
    assert written(tmp_path, "tumbling"), "windows before the fence have fired"
    stream(tmp_path, parallelism=after, **{"state.backend.type": backend})
    check(tmp_path)


def test_a_run_that_dies_before_the_commit_is_committed_by_the_stream(tmp_path: Path) -> None:
    bootstrap(tmp_path, commits=False)
    assert not list((tmp_path / "out" / "rows").glob("part-*")), "nothing is visible"
    with pytest.raises(ConfigError, match="has a savepoint already"):
        bootstrap(tmp_path)
    stream(tmp_path)
    check(tmp_path)


def test_a_savepoint_is_not_overwritten_and_its_commit_may_come_twice(tmp_path: Path) -> None:
    bootstrap(tmp_path)
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "START").rglob("*")}
    with pytest.raises(ConfigError, match=r"has a savepoint already.*unistream run … -s"):
        bootstrap(tmp_path)
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "START").rglob("*")} == before
    again = us.finalize_savepoint(str(tmp_path / "START"))
    assert len(again.commits) == 4
    assert again.had_nothing_to_do


def test_state_and_output_of_attempts_that_lost_is_removed(tmp_path: Path) -> None:
    """A slow task and its copy, or one whose output was lost: the state of one of the two is restored."""
    manifest = bootstrap(tmp_path, copies=True)
    files = {str(file.relative_to(tmp_path / "START")) for file in (tmp_path / "START").rglob("part-*")}
    assert files == {ref.path for ref in referenced_files(manifest)} != set()
    stream(tmp_path)
    check(tmp_path)


def test_what_earlier_runs_left_is_removed_when_the_savepoint_is_there(tmp_path: Path) -> None:
    left = tmp_path / "START" / state_folder_of("dead") / "sessions" / "count" / "part-1.arrow"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    manifest = bootstrap(tmp_path)
    assert not (tmp_path / "START" / state_folder_of("dead")).exists()
    us.read_savepoint(str(tmp_path / "START")).verify()
    assert manifest.checkpoint_id == 1


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "START").mkdir()
    (tmp_path / "START" / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match=r"has other files, such as 'thesis\.txt'"):
        bootstrap(tmp_path)


class Grows(us.KeyedProcessFunction):
    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        raise ValueError("bad row")


def test_without_a_savepoint_nothing_is_visible(tmp_path: Path) -> None:
    env = us.Environment()
    times = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    read = env.from_source(source(fence=FENCE, timestamp_column="at"), times, "rows").uid("rows")
    read.sink_to(us.FileSink(str(tmp_path / "out"))).uid("kept")
    read.key_by("user").process(Grows(), returns=SESSION).uid("grows").sink_to(us.BlackholeSink()).uid("hole")
    graph, code, _ = env.staged_job_graph("history", BootstrapOrder.of(tmp_path / "START", None))
    with pytest.raises(Exception, match="bad row"):
        bootstrap_in_stages(graph, code, tmp_path)
    assert not (tmp_path / "START" / "_metadata").exists()
    assert not list((tmp_path / "out").glob("part-*"))


def test_a_fence_that_is_found_at_the_end_of_the_history_is_in_the_savepoint(tmp_path: Path) -> None:
    def build_derived(env: us.Environment) -> None:
        found = source(switch="last-event-time", timestamp_column="at")
        read = env.from_source(found, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
        read.sink_to(us.FileSink(str(tmp_path / "out" / "rows"))).uid("kept")

    env = us.Environment({"parallelism.default": "2"})
    build_derived(env)
    graph, code, _ = env.staged_job_graph("history", BootstrapOrder.of(tmp_path / "START", None))
    bootstrap_in_stages(graph, code, tmp_path)
    assert len(written(tmp_path, "rows")) == len(rows(0, FENCE + BOTH))
    env = us.Environment({"parallelism.default": "3", **STREAMING})
    build_derived(env)
    go_on(env, tmp_path / "START")
    assert sorted(ds.dataset(str(tmp_path / "out" / "rows")).to_table()["id"].to_pylist()) == list(range(END))


TIMES = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
NONE = us.WatermarkStrategy.no_watermarks()
FENCED = {"fence": FENCE, "timestamp_column": "at"}
REFUSED: dict[str, tuple[Callable[[], us.Source], us.WatermarkStrategy, Any, str]] = {
    "no history": (lambda: us.StaticSource(rows(0, 9)), TIMES, None, "the pipeline has no HybridSource"),
    "no fence": (source, TIMES, None, r"'rows' is not known; fence it by its event times.*'at'"),
    "a fence by another column": (
        lambda: source(fence=5, timestamp_column="id"),
        TIMES,
        None,
        "'rows' is not known; fence it by its event times",
    ),
    "another fence": (
        lambda: source(**FENCED),
        TIMES,
        7,
        "until is 7 ms, and the fence of source 'rows' is 1000 ms",
    ),
    "until without a fence": (source, NONE, 7, "until is 7 ms, and source 'rows' has no fence"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_pipeline_that_cannot_be_bootstrapped_is_refused(name: str, tmp_path: Path) -> None:
    made, times, until, why = REFUSED[name]
    env = us.Environment()
    env.from_source(made(), times, "rows").print()
    with pytest.raises(ConfigError, match=why):
        env.staged_job_graph("refused", BootstrapOrder.of(tmp_path / "START", until))
    assert not (tmp_path / "START").exists()


def test_an_endless_source_without_history_is_refused_by_name(tmp_path: Path) -> None:
    env = us.Environment()
    env.from_source(source(**FENCED), TIMES, "rows").print()
    ticks = us.KafkaSource(bootstrap_servers="localhost:1", topic="ticks", schema=SESSION)
    env.from_source(ticks, NONE, "ticks").print()
    with pytest.raises(ConfigError, match="source 'ticks' never ends and has no history"):
        env.staged_job_graph("refused", BootstrapOrder.of(tmp_path / "START", None))


def test_a_sink_of_bounded_rows_alone_is_refused_by_name(tmp_path: Path) -> None:
    env = us.Environment()
    env.from_source(source(**FENCED), TIMES, "rows").print()
    env.from_collection(rows(0, 9), name="names").sink_to(us.FileSink(str(tmp_path / "out")))
    with pytest.raises(ConfigError, match=r"'names.*' writes rows of sources that have no live part"):
        env.staged_job_graph("refused", BootstrapOrder.of(tmp_path / "START", None))


def test_event_times_that_are_assigned_behind_the_source_are_refused(tmp_path: Path) -> None:
    env = us.Environment()
    live, history = us.StaticSource(rows(0, 9)), us.StaticSource(rows(0, 9))
    hybrid = us.HybridSource(history, live, **FENCED)
    read = env.from_source(hybrid, NONE, "rows")
    try:
        read.assign_timestamps_and_watermarks(TIMES).print()
    except ConfigError:
        pytest.skip("the API refuses it before")
    with pytest.raises(ConfigError, match="assigns event times behind the source"):
        env.staged_job_graph("refused", BootstrapOrder.of(tmp_path / "START", None))
