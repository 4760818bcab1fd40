"""`simulate` finds what a pipeline does wrong when its cluster fails, and lets a right one pass."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unistream as us
from tests.simulation.reached_by import seeds
from unistream.base.errors import ConfigError, UserCodeError
from unistream.cli.main import main
from unistream.port.source import Idle, Polled
from unistream.testing import Faults, simulate
from unistream.testing.sim.story import StoryFile

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "simulation.md"
COUNTED = pa.schema([("k", pa.int64()), ("n", pa.int64())])
TIMES = us.WatermarkStrategy.for_bounded_out_of_orderness(20).with_timestamp_column("t")
EVENTS = us.DatagenSource(
    {"id": us.datagen.Sequential(), "k": us.datagen.RandomInt(0, 5), "t": us.datagen.EventTime(0, 10, 20)},
    rows=200,
    splits=2,
)
SEEN: list[int] = []


def events(env: us.Environment) -> us.DataStream:
    return env.set_parallelism(2).from_source(EVENTS, TIMES, "events")


class CountInState(us.KeyedProcessFunction):
    count = us.ValueStateDescriptor("count", pa.int64())

    def process_element(self, row, context, out) -> None:
        count = context.state(self.count)
        count.update(1 + (count.value() or 0))
        out.emit({"k": row["k"], "n": count.value()})


class CountInSelf(us.KeyedProcessFunction):
    def open(self, context) -> None:
        self.counts: dict[int, int] = {}

    def process_element(self, row, context, out) -> None:
        self.counts[row["k"]] = 1 + self.counts.get(row["k"], 0)
        out.emit({"k": row["k"], "n": self.counts[row["k"]]})


class Remember(us.ProcessFunction):
    def process_element(self, row, context, out) -> None:
        SEEN.append(row["id"])
        out.emit(row)


def right(env: us.Environment) -> None:
    """Keyed windows, keyed state, and a join with a bounded side."""
    names = us.StaticSource(pa.table({"key": range(5), "name": list("abcde")}))
    dimension = env.from_source(names, us.WatermarkStrategy.no_watermarks(), "names")
    joined = events(env).join(dimension, {"k": "key"})
    windows = joined.key_by("name").window(us.TumblingEventTimeWindows.of(500))
    windows.aggregate(n=us.count(), last=us.max("id")).sink_to(us.BlackholeSink()).uid("windows")
    joined.key_by("k").process(CountInState(), returns=COUNTED).sink_to(us.BlackholeSink()).uid("counts")


def forgetful(env: us.Environment) -> None:
    events(env).key_by("k").process(CountInSelf(), returns=COUNTED).sink_to(us.BlackholeSink()).uid("counts")


def no_fifth(row: dict[str, int]) -> dict[str, int]:
    if row["id"] % 5 == 0:
        raise ValueError("a fifth one")
    return {"id": row["id"]}


def refusing(env: us.Environment) -> None:
    """Every fifth row becomes a dead letter."""
    returns = {"id": pa.int64()}
    rows = events(env).map(no_fifth, returns=returns, on_error="dead-letter").uid("rows")
    rows.sink_to(us.BlackholeSink()).uid("out")
    rows.dead_letters_to(us.BlackholeSink())


def from_kafka(env: us.Environment) -> None:
    schema = pa.schema([("id", pa.int64()), ("k", pa.int64())])
    source = us.KafkaSource(bootstrap_servers="nowhere:9092", topic="events", schema=schema)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "kafka")
    rows.key_by("k").process(CountInState(), returns=COUNTED).sink_to(us.BlackholeSink()).uid("counts")


def test_a_right_pipeline_passes_many_seeds() -> None:
    report = simulate(right, seeds=seeds(20, 200))
    report.raise_for_failures()
    assert report.seeds == len(seeds(20, 200))
    assert report.restarts > 2.5 * report.seeds, "the faults of most seeds make tasks begin again"
    assert "sink 'windows' (blackhole) is replaced by a table in memory" in report.replaced


def test_a_right_pipeline_passes_when_it_is_rescaled() -> None:
    report = simulate(right, seeds=seeds(5, 20), rescale=True)
    report.raise_for_failures()
    assert report.restarts


def test_dead_letters_are_the_same_whenever_they_were_sent() -> None:
    """Their times, ids and attempts are of the run; the rows and errors are compared."""
    report = simulate(refusing, seeds=seeds(5, 30))
    report.raise_for_failures()
    assert report.restarts
    assert any("'rows-dead-letters'" in one for one in report.replaced)


def test_a_count_in_self_is_found_and_its_story_is_short() -> None:
    report = simulate(forgetful, seeds=range(3))
    assert not report.ok
    first = report.failures[0]
    assert first.differences[0].sink == "counts"
    assert first.differences[0].columns == ("k", "n")
    assert first.differences[0].lost
    assert first.differences[0].doubled
    assert len([word for word in first.faults.text().split(", ") if word]) <= 2, "others were not needed"
    assert any("FAULT" in line or "FAILED" in line for line in first.story)
    assert any(re.search(r"task \w+#\d\.1 begins", line) for line in first.story), "names, no ids"
    with pytest.raises(AssertionError, match=rf"seed {first.seed} failed, with these faults"):
        report.raise_for_failures()


def test_a_seed_that_failed_fails_again() -> None:
    first = simulate(forgetful, seeds=range(1)).failures[0]
    again = simulate(forgetful, seeds=[first.seed]).failures[0]
    assert again == first


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
def test_a_seed_over_files_is_the_same_run_wherever_they_are(tmp_path: Path, mode: str) -> None:
    """And however fast they are read: a reader has no thread in a simulation."""

    def story(folder: str) -> tuple[str, ...]:
        for number in range(6):
            path = tmp_path / folder / f"{number}.parquet"
            path.parent.mkdir(exist_ok=True)
            rows = range(number * 20, number * 20 + 20)
            pq.write_table(pa.table({"k": [n % 7 for n in rows], "t": rows}), path, row_group_size=5)

        def pipeline(env: us.Environment) -> None:
            schema = pa.schema([("k", pa.int64()), ("t", pa.int64())])
            source = us.FileSource(str(tmp_path / folder), format="parquet", schema=schema)
            read = env.set_parallelism(2).from_source(source, TIMES, "files").uid("files")
            counted = read.key_by("k").process(CountInState(), returns=COUNTED).uid("count")
            counted.sink_to(us.CollectSink("out")).uid("out")

        report = simulate(pipeline, seeds=[5], config={"execution.runtime-mode": mode}, story=True)
        report.raise_for_failures()
        return report.story

    first = story("a")
    assert len(first) > 100
    assert story("b") == first
    assert story("c") == first


class ToldInVain:
    """A source of one's own, whose readers have nothing more, and cannot be notified of a checkpoint, once
    one of them was killed."""

    name = "notified in vain"
    schema = EVENTS.schema

    def info(self):
        return EVENTS.info()

    def create_reader(self):
        return DeafReader(EVENTS.create_reader())


class DeafReader:
    opened = 0

    def __init__(self, reader) -> None:
        self.reader = reader

    def __getattr__(self, name: str):
        return getattr(self.reader, name)

    def open(self, context) -> None:
        DeafReader.opened += 1
        self.reader.open(context)

    def poll(self) -> Polled:
        return Idle(retry_ms=100) if DeafReader.opened > 2 else self.reader.poll()

    def notify_checkpoint_complete(self, checkpoint_id) -> None:
        if DeafReader.opened > 2:  # not the first of either subtask
            raise RuntimeError("cannot be notified")


def deaf(env: us.Environment) -> None:
    rows = env.set_parallelism(2).from_source(ToldInVain(), TIMES, "events")
    rows.sink_to(us.BlackholeSink()).uid("out")


def test_a_job_that_fails_behind_each_of_its_checkpoints_is_not_watched_for_ever() -> None:
    def begin() -> None:
        DeafReader.opened = 0

    report = simulate(deaf, seeds=[4], faults=Faults(kill_every_ms=800), reset=begin)
    [failure] = report.failures
    assert failure.reason.startswith(
        "the job keeps failing: 40 times, with checkpoints in between, but no input, operator "
    )
    assert failure.reason.endswith("RuntimeError: cannot be notified")


def test_a_side_effect_is_found_as_doubled_rows() -> None:
    report = simulate(
        lambda env: events(env).process(Remember()).sink_to(us.BlackholeSink()).uid("out"),
        seeds=range(2),
        outputs={"seen": lambda: SEEN},
        reset=SEEN.clear,
    )
    assert {d.sink for failure in report.failures for d in failure.differences} == {"seen"}
    assert report.failures[0].differences[0].doubled


def test_a_source_without_end_reads_the_rows_that_are_given() -> None:
    rows = [{"id": n, "k": n % 3} for n in range(60)]

    def all_are_counted(results: dict[str, pa.Table]) -> None:
        counts = results["counts"].group_by("k").aggregate([("n", "max")]).sort_by("k").to_pylist()
        assert [row["n_max"] for row in counts] == [20, 20, 20]

    for check in (None, all_are_counted):
        report = simulate(from_kafka, seeds=seeds(3, 10), inputs={"kafka": rows}, check=check)
        report.raise_for_failures()
        assert "source 'kafka' (kafka) reads the rows of `inputs`" in report.replaced


class Unreachable(us.BlackholeSink):
    """Nothing of it may be used where nothing real is there."""

    def check(self, schema: pa.Schema | None) -> None:
        raise ConnectionError("the store does not answer")

    def create_writer(self):
        raise ConnectionError("the store does not answer")

    def create_committer(self):
        raise ConnectionError("the store does not answer")


def to_unreachable(env: us.Environment) -> None:
    events(env).sink_to(Unreachable()).uid("out")


def test_a_sink_that_is_replaced_is_not_touched() -> None:
    report = simulate(to_unreachable, seeds=range(3))
    report.raise_for_failures()
    assert "sink 'out' (blackhole) is replaced by a table in memory" in report.replaced
    with pytest.raises(ConnectionError):
        simulate(to_unreachable, seeds=range(1), keep_sinks=True, outputs={"rows": list})
    with pytest.raises(ConnectionError):
        to_unreachable(us.Environment())


def test_what_check_refuses_is_a_failure() -> None:
    def no_key_is_counted_twice(results: dict[str, pa.Table]) -> bool:
        rows = results["counts"].to_pylist()
        return len({(row["k"], row["n"]) for row in rows}) == len(rows)

    report = simulate(forgetful, seeds=range(1), check=no_key_is_counted_twice)
    assert "check returned False" in report.failures[0].reason


def test_without_faults_nothing_is_found() -> None:
    assert simulate(forgetful, seeds=range(5), faults=Faults()).ok


def broken(env: us.Environment) -> None:
    def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("no such thing")

    events(env).map_batches(fail).sink_to(us.BlackholeSink()).uid("out")


@pytest.mark.parametrize(
    ("pipeline", "arguments", "error", "text"),
    [
        pytest.param(from_kafka, {}, ConfigError, "'kafka'.*is unbounded", id="no rows for Kafka"),
        pytest.param(right, {"inputs": {"x": []}}, ConfigError, "'x'.*not one of", id="rows for no source"),
        pytest.param(right, {"keep_sinks": True}, ConfigError, "outputs=", id="sinks that nobody reads"),
        pytest.param(lambda: None, {}, ConfigError, "must return", id="no environment"),
        pytest.param(broken, {}, UserCodeError, "no such thing", id="fails without faults"),
        pytest.param(right, {"check": lambda _: False}, UserCodeError, "check fails", id="check is wrong"),
    ],
)
def test_what_cannot_be_simulated_is_refused(pipeline, arguments, error, text: str) -> None:
    with pytest.raises(error, match=text):
        simulate(pipeline, seeds=range(1), **arguments)


@pytest.mark.parametrize(
    ("seeds", "text"),
    [
        pytest.param(range(0), "seeds is empty, so no run would be made", id="no seed"),
        pytest.param(iter(()), "seeds is empty", id="an iterator without any"),
        pytest.param("17", "seeds is '17'; it must be whole numbers", id="text"),
        pytest.param(17, "seeds is 17; it must be whole numbers", id="a number"),
        pytest.param([None], "seed None is not a whole number", id="nothing"),
        pytest.param([0.5], "seed 0.5 is not a whole number", id="half a number"),
    ],
)
def test_seeds_that_test_nothing_are_refused(seeds, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        simulate(right, seeds=seeds)


def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "simulated_flow.py").write_text(
        "import unistream as us\n"
        "def build(env):\n"
        "    source = us.DatagenSource({'n': us.datagen.Sequential()}, rows=50)\n"
        "    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), 'numbers')\n"
        "    rows.sink_to(us.BlackholeSink()).uid('out')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["simulate", "simulated_flow:build", "--seeds", "0:3", "--json"]) == 0
    shown = msgspec.json.decode(capsys.readouterr().out)
    assert (shown["ok"], shown["seeds"], shown["failures"]) == (True, 3, [])
    assert main(["simulate", "simulated_flow:build", "--seed", "2", "--story"]) == 0
    assert "ended as FINISHED" in capsys.readouterr().out
    assert main(["simulate", "simulated_flow:build", "--seeds", "3"]) == 2
    file = tmp_path / "story.json"
    assert main(["simulate", "simulated_flow:build", "--seeds", "0:2", "--story-file", str(file)]) == 0
    assert "no seed failed, so no story was written" in capsys.readouterr().err
    assert not file.exists()
    assert main(["simulate", "simulated_flow:build", "--seed", "2", "--story-file", str(file)]) == 0
    assert "ended as FINISHED" not in capsys.readouterr().out, "it is in the file"
    assert msgspec.json.decode(file.read_bytes(), type=StoryFile).lines[-1].text == "job ended as FINISHED"
    nowhere = str(tmp_path / "nowhere" / "story.json")
    assert main(["simulate", "simulated_flow:build", "--seed", "2", "--story-file", nowhere]) == 2


def test_the_story_of_a_failure_says_who_did_what() -> None:
    """Each message has the processes that sent and got it, each fault the one that it hit."""
    report = simulate(forgetful, seeds=range(1), faults=Faults(kill_every_ms=1_000))
    story = report.story_file("flow:forgetful")
    assert story is not None
    assert story.title == "flow:forgetful, seed 0"
    assert "row(s) lost" in story.reason
    messages = [line for line in story.lines if " -> " in line.text]
    assert messages
    assert all(line.source and line.target and line.source != line.target for line in messages)
    assert {line.source.partition("-")[0] for line in messages} >= {"master"}
    hit = [line for line in story.lines if line.text.startswith(("FAULT kill", "FAULT pause"))]
    assert hit
    assert all(line.text.split()[2] == line.source for line in hit)
    assert tuple(map(str, story.lines)) == report.failures[0].story


def test_without_a_failure_or_a_wanted_story_there_is_no_file() -> None:
    assert simulate(right, seeds=[3]).story_file("flow:right") is None
    wanted = simulate(right, seeds=[3], story=True).story_file("flow:right")
    assert wanted is not None
    assert (wanted.title, wanted.reason, wanted.faults) == ("flow:right", "", "")


def test_an_operator_that_emits_more_than_its_output_takes_waits_for_nobody() -> None:
    """One thread runs all tasks, so none could make room meanwhile."""

    def pipeline(env: us.Environment) -> None:
        rows = us.StaticSource(pa.table({"k": range(300), "at": [n % 10 for n in range(300)]}))
        times = us.WatermarkStrategy.for_bounded_out_of_orderness("1 s").with_timestamp_column("at")
        windows = (
            env.from_source(rows, times, "rows").key_by("k").window(us.SlidingEventTimeWindows.of(20, 1))
        )
        counts = windows.aggregate(n=us.count())
        counts.rebalance().map(lambda row: row, returns=counts.schema).sink_to(us.CollectSink("counts"))

    network = {f"taskmanager.memory.network.{bound}": "1 mb" for bound in ("min", "max")}
    options = {"execution.runtime-mode": "STREAMING", "parallelism.default": "2", **network}
    assert simulate(pipeline, seeds=range(2), config=options).failures == ()


class Pages(us.PollingSource):
    """Ten pages of each split."""

    schema = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("t", pa.int64())])
    bounded = True

    def splits(self) -> list[str]:
        return ["0", "1", "2"]

    def poll(self, split: str, position: int | None) -> tuple[pa.RecordBatch | None, int | None]:
        first = int(split) * 1000 + (position or 0)
        ids = list(range(first, first + 5))
        following = (position or 0) + 5
        page = pa.record_batch([ids, [id % 5 for id in ids], ids], schema=self.schema)
        return page, following if following < 50 else None


def polled(env: us.Environment) -> None:
    rows = env.set_parallelism(2).from_source(Pages(), TIMES).uid("pages")
    rows.key_by("k").process(CountInState(), returns=COUNTED).sink_to(us.BlackholeSink()).uid("counts")


@pytest.mark.parametrize("rescale", [False, True], ids=["as it is", "rescaled"])
def test_a_source_of_a_users_own_passes_many_seeds(rescale: bool) -> None:
    report = simulate(polled, seeds=seeds(20, 200), rescale=rescale)
    report.raise_for_failures()
    assert report.restarts
