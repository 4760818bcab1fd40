"""`simulate` finds what a pipeline does wrong when its cluster fails, and lets a right one pass."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import unistream as us
from unistream.base.errors import ConfigError, UserCodeError
from unistream.cli.main import main
from unistream.model.elements import Batch
from unistream.testing import Faults, simulate

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


class Ledger(us.TwoPhaseCommitSink[str]):
    """Transactions are files; committing moves their rows to the end of one file. `safe`: only once."""

    name = "ledger"

    def __init__(self, folder: Path, *, safe: bool) -> None:
        self.folder = folder
        self.safe = safe

    def begin_transaction(self) -> str:
        return uuid.uuid4().hex

    def invoke(self, transaction: str, batch) -> None:
        with (self.folder / transaction).open("a") as file:
            file.writelines(json.dumps(row["id"]) + "\n" for row in batch.records.to_pylist())

    def commit(self, transaction: str) -> None:
        staged, done = self.folder / transaction, self.folder / f"{transaction}.done"
        if not staged.exists() or (self.safe and done.exists()):
            return
        with (self.folder / "ledger").open("a") as ledger:
            ledger.write(staged.read_text())
        done.touch()

    def abort(self, transaction: str) -> None:
        (self.folder / transaction).unlink(missing_ok=True)

    def rows(self) -> list[int]:
        return [json.loads(line) for line in (self.folder / "ledger").read_text().splitlines()]

    def clear(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()


class Forgetful(Ledger):
    """Keeps rows in `self`, where the copy that commits has none of them."""

    def open(self, context) -> None:
        self.buffered: list[int] = []

    def invoke(self, transaction: str, batch) -> None:
        self.buffered += batch.records.column("id").to_pylist()

    def pre_commit(self, transaction: str) -> None:
        (self.folder / transaction).touch()

    def commit(self, transaction: str) -> None:
        with (self.folder / "ledger").open("a") as ledger:
            ledger.writelines(f"{id_}\n" for id_ in getattr(self, "buffered", ()))


class EveryOther(Ledger):
    """Loses half of the rows, always."""

    def invoke(self, transaction: str, batch) -> None:
        super().invoke(transaction, Batch(batch.records.filter(pc.equal(batch.records["k"], 1))))


class OnceOnly(Ledger):
    """Fails for ever when it is told twice."""

    def commit(self, transaction: str) -> None:
        with (self.folder / "ledger").open("a") as ledger:
            if (self.folder / transaction).exists():
                ledger.write((self.folder / transaction).read_text())
        (self.folder / f"{transaction}.done").touch(exist_ok=False)


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


def from_kafka(env: us.Environment) -> None:
    schema = pa.schema([("id", pa.int64()), ("k", pa.int64())])
    source = us.KafkaSource(bootstrap_servers="nowhere:9092", topic="events", schema=schema)
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "kafka")
    rows.key_by("k").process(CountInState(), returns=COUNTED).sink_to(us.BlackholeSink()).uid("counts")


@pytest.mark.timeout(300)
def test_a_right_pipeline_passes_two_hundred_seeds() -> None:
    report = simulate(right, seeds=range(200))
    report.raise_for_failures()
    assert report.seeds == 200
    assert report.restarts > 500, "the faults of most seeds make tasks begin again"
    assert "sink 'windows' (blackhole) is a table in memory" in report.replaced


def test_a_right_pipeline_passes_when_it_is_rescaled() -> None:
    simulate(right, seeds=range(20), rescale=True).raise_for_failures()


def test_a_count_in_self_is_found_and_its_story_is_short() -> None:
    report = simulate(forgetful, seeds=range(10))
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
    first = simulate(forgetful, seeds=range(10)).failures[0]
    again = simulate(forgetful, seeds=[first.seed]).failures[0]
    assert again == first


@pytest.mark.parametrize(("safe", "ok"), [(True, True), (False, False)])
def test_a_commit_that_is_not_safe_to_repeat_is_found(tmp_path: Path, safe: bool, ok: bool) -> None:
    ledger = Ledger(tmp_path, safe=safe)
    report = simulate(
        lambda env: events(env).sink_to(ledger).uid("ledger"),
        seeds=range(15),
        keep_sinks=True,
        outputs={"rows": ledger.rows},
        reset=ledger.clear,
    )
    assert report.ok is ok
    if not ok:
        found = report.failures[0].differences[0]
        assert (bool(found.lost), bool(found.doubled), bool(found.foreign)) == (False, True, False)


@pytest.mark.parametrize(
    ("output", "text"),
    [
        pytest.param("ledger", "(id, k, t):\n  200 row(s) lost", id="an output of its name"),
        pytest.param(
            "rows", "200 row(s) reach sink 'ledger' (ledger) without any fault", id="another output"
        ),
    ],
)
def test_a_sink_that_never_shows_a_row_is_found(tmp_path: Path, output: str, text: str) -> None:
    ledger = Forgetful(tmp_path, safe=True)
    report = simulate(
        lambda env: events(env).sink_to(ledger).uid("ledger"),
        seeds=range(5),
        keep_sinks=True,
        outputs={output: ledger.rows},
        reset=ledger.clear,
    )
    [failure] = report.failures
    assert (failure.seed, report.seeds) == (None, 0)
    assert text in failure.reason
    assert str(report).startswith("the run without faults failed, so no seed was tried")


@pytest.mark.parametrize(
    ("kind", "ok"),
    [pytest.param(Ledger, True, id="right"), pytest.param(EveryOther, False, id="half of them")],
)
def test_what_a_sink_shows_without_faults_is_held_against_what_reaches_it(
    tmp_path: Path, kind: type[Ledger], ok: bool
) -> None:
    ledger = kind(tmp_path, safe=True)
    report = simulate(
        lambda env: events(env).sink_to(ledger).uid("ledger"),
        seeds=range(3),
        keep_sinks=True,
        outputs={"ledger": lambda: [{"id": id_} for id_ in ledger.rows()]},
        reset=ledger.clear,
    )
    assert report.ok is ok
    assert report.compared == (
        "sink 'ledger' (ledger) writes itself: without faults, the 200 row(s) that reach it were compared "
        "with its output by id ('k' is not in it; 't' is not in it)",
    )
    if not ok:
        [found] = report.failures[0].differences
        assert 100 < sum(found.lost.values()) < 200
        assert (found.columns, found.doubled, found.foreign) == (("id",), {}, {})
        assert report.failures[0].reason.startswith("sink 'ledger' (ledger) shows other rows than reach it")


def test_check_judges_a_sink_that_is_kept(tmp_path: Path) -> None:
    ledger = EveryOther(tmp_path, safe=True)
    report = simulate(
        lambda env: events(env).sink_to(ledger).uid("ledger"),
        seeds=range(3),
        keep_sinks=True,
        outputs={"ledger": ledger.rows},
        reset=ledger.clear,
        check=lambda results: results["ledger"].num_rows < 100,
    )
    report.raise_for_failures()
    assert report.compared == ()


def test_a_commit_that_fails_for_ever_is_named_soon(tmp_path: Path) -> None:
    ledger = OnceOnly(tmp_path, safe=True)
    report = simulate(
        lambda env: events(env).sink_to(ledger).uid("ledger"),
        seeds=range(10),
        faults=Faults(kill_every_ms=400),
        keep_sinks=True,
        outputs={"rows": ledger.rows},
        reset=ledger.clear,
    )
    found = [
        one for one in report.failures if one.reason.startswith("the job fails again and again: 20 times")
    ]
    assert found
    for failure in found:
        assert "operator 'ledger committer' (uid 'ledger-committer')" in failure.reason
        assert "FileExistsError" in failure.reason
    assert not any("events and no end" in failure.reason for failure in report.failures)


class ToldInVain:
    """A source of one's own, whose readers cannot be told of a checkpoint once one of them was killed."""

    name = "told in vain"
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

    def notify_checkpoint_complete(self, checkpoint_id) -> None:
        if DeafReader.opened > 2:  # not the first of either subtask
            raise RuntimeError("cannot be told")


def deaf(env: us.Environment) -> None:
    rows = env.set_parallelism(2).from_source(ToldInVain(), TIMES, "events")
    rows.sink_to(us.BlackholeSink()).uid("out")


def test_a_job_that_fails_behind_each_of_its_checkpoints_is_not_watched_for_ever() -> None:
    def begin() -> None:
        DeafReader.opened = 0

    report = simulate(deaf, seeds=[4], faults=Faults(kill_every_ms=800), reset=begin)
    [failure] = report.failures
    assert failure.reason.startswith(
        "the job fails again and again: 40 times, with checkpoints in between, but no input, operator "
    )
    assert failure.reason.endswith("RuntimeError: cannot be told")


def test_a_side_effect_is_found_as_doubled_rows() -> None:
    report = simulate(
        lambda env: events(env).process(Remember()).sink_to(us.BlackholeSink()).uid("out"),
        seeds=range(10),
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
        report = simulate(from_kafka, seeds=range(10), inputs={"kafka": rows}, check=check)
        report.raise_for_failures()
        assert "source 'kafka' (kafka) reads the rows that were given" in report.replaced


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
    assert "sink 'out' (blackhole) is a table in memory" in report.replaced
    with pytest.raises(ConnectionError):
        simulate(to_unreachable, seeds=range(1), keep_sinks=True, outputs={"rows": list})
    with pytest.raises(ConnectionError):
        to_unreachable(us.Environment())


def test_what_check_refuses_is_a_failure() -> None:
    def no_key_is_counted_twice(results: dict[str, pa.Table]) -> bool:
        rows = results["counts"].to_pylist()
        return len({(row["k"], row["n"]) for row in rows}) == len(rows)

    report = simulate(forgetful, seeds=range(10), check=no_key_is_counted_twice)
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
        pytest.param(from_kafka, {}, ConfigError, "'kafka'.*never ends", id="no rows for Kafka"),
        pytest.param(right, {"inputs": {"x": []}}, ConfigError, "'x'.*none of", id="rows for no source"),
        pytest.param(right, {"keep_sinks": True}, ConfigError, "outputs=", id="sinks that nobody reads"),
        pytest.param(lambda: None, {}, ConfigError, "has to return", id="no environment"),
        pytest.param(broken, {}, UserCodeError, "no such thing", id="fails without faults"),
        pytest.param(right, {"check": lambda _: False}, UserCodeError, "check refuses", id="check is wrong"),
    ],
)
def test_what_cannot_be_simulated_is_refused(pipeline, arguments, error, text: str) -> None:
    with pytest.raises(error, match=text):
        simulate(pipeline, seeds=range(1), **arguments)


@pytest.mark.parametrize(
    ("seeds", "text"),
    [
        pytest.param(range(0), "seeds is empty, so that nothing would run", id="no seed"),
        pytest.param(iter(()), "seeds is empty", id="an iterator without any"),
        pytest.param("17", "seeds is '17'; it must be whole numbers", id="text"),
        pytest.param(17, "seeds is 17; it must be whole numbers", id="a number"),
        pytest.param([None], "seed None is no whole number", id="nothing"),
        pytest.param([0.5], "seed 0.5 is no whole number", id="half a number"),
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
    assert main(["simulate", "simulated_flow:build", "--seeds", "0:3"]) == 0
    assert capsys.readouterr().out.startswith("3 seeds, 0 failed")
    assert main(["simulate", "simulated_flow:build", "--seed", "2", "--story"]) == 0
    assert "ended as FINISHED" in capsys.readouterr().out
    assert main(["simulate", "simulated_flow:build", "--seeds", "3"]) == 2


def test_the_guide_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    names: dict[str, object] = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
    names["test_counts"]()  # type: ignore[operator]
