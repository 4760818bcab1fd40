"""Sinks of a user's own in `simulate`: what they show, notified twice, cut off between two lines."""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.simulation.reached_by import seeds
from unistream.model.elements import Batch
from unistream.port.sink import Sink
from unistream.testing import Faults, SimulationReport, simulate

TIMES = us.WatermarkStrategy.for_bounded_out_of_orderness(20).with_timestamp_column("t")
EVENTS = us.DatagenSource(
    {"id": us.datagen.Sequential(), "k": us.datagen.RandomInt(0, 5), "t": us.datagen.EventTime(0, 10, 20)},
    rows=200,
    splits=2,
)
NOTHING = pa.table({"id": pa.array([], pa.int64())})


def events(env: us.Environment) -> us.DataStream:
    return env.set_parallelism(2).from_source(EVENTS, TIMES, "events")


class Ledger(us.TwoPhaseCommitSink[str]):
    """Transactions are files; a commit gives one another name, which is one step and can be repeated."""

    name = "ledger"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin_transaction(self) -> str:
        return uuid.uuid4().hex

    def invoke(self, transaction: str, batch: Batch) -> None:
        with (self.folder / transaction).open("a") as file:
            file.writelines(json.dumps(row["id"]) + "\n" for row in batch.records.to_pylist())

    def commit(self, transaction: str) -> None:
        staged = self.folder / transaction
        if staged.exists():
            staged.rename(self.folder / f"{transaction}.committed")

    def abort(self, transaction: str) -> None:
        (self.folder / transaction).unlink(missing_ok=True)

    def rows(self) -> list[int]:
        files = sorted(self.folder.glob("*.committed"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def clear(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()


class Again(Ledger):
    """A commit that is repeated shows its rows once more."""

    def commit(self, transaction: str) -> None:
        staged = self.folder / transaction
        if staged.exists():
            with (self.folder / "all.committed").open("a") as ledger:
                ledger.write(staged.read_text())


class NotedAfter(Again):
    """The same, unless it is noted that it was done."""

    def commit(self, transaction: str) -> None:
        done = self.folder / f"{transaction}.done"
        if not done.exists():
            super().commit(transaction)
            done.touch()


class NotedBefore(Again):
    """The same, the other way round."""

    def commit(self, transaction: str) -> None:
        done = self.folder / f"{transaction}.done"
        if not done.exists():
            done.touch()
            super().commit(transaction)


class Forgetful(Ledger):
    """Keeps rows in `self`, where the copy that commits has none of them."""

    def open(self, context: object) -> None:
        self.buffered: list[int] = []

    def invoke(self, transaction: str, batch: Batch) -> None:
        self.buffered += batch.records.column("id").to_pylist()

    def pre_commit(self, transaction: str) -> None:
        (self.folder / transaction).touch()

    def commit(self, transaction: str) -> None:
        with (self.folder / "all.committed").open("a") as ledger:
            ledger.writelines(f"{id_}\n" for id_ in getattr(self, "buffered", ()))


class EveryOther(Ledger):
    """Loses half of the rows, always."""

    def invoke(self, transaction: str, batch: Batch) -> None:
        super().invoke(transaction, Batch(batch.records.filter(pc.equal(batch.records["k"], 1))))


class OnceOnly(Ledger):
    """Fails for ever when it is notified twice."""

    def commit(self, transaction: str) -> None:
        super().commit(transaction)
        (self.folder / f"{transaction}.done").touch(exist_ok=False)


def tried(ledger: Ledger, tries: range, **more: Any) -> SimulationReport:
    """A pipeline into it, under faults."""
    more.setdefault("outputs", {"rows": ledger.rows})
    return simulate(
        lambda env: events(env).sink_to(ledger).uid("ledger"),
        seeds=tries,
        keep_sinks=True,
        reset=ledger.clear,
        **more,
    )


CUT = Faults(commit_unknown=0.3)
"""No worker dies between two steps of a task: all that goes wrong is inside of commits."""


@pytest.mark.parametrize(
    ("kind", "faults", "wrong"),
    [
        pytest.param(Ledger, None, set(), id="right"),
        pytest.param(Ledger, CUT, set(), id="right, and cut off"),
        pytest.param(Again, Faults(kill_every_ms=400), {"doubled"}, id="not safe to repeat"),
        pytest.param(NotedAfter, Faults(kill_every_ms=400), set(), id="between steps nobody sees that it"),
        pytest.param(NotedAfter, CUT, {"doubled"}, id="is cut off before it is noted"),
        pytest.param(NotedBefore, CUT, {"lost"}, id="is noted before it is done"),
    ],
)
def test_a_commit_is_repeated_and_cut_off(
    tmp_path: Path, kind: type[Ledger], faults: Faults | None, wrong: set[str]
) -> None:
    ledger = kind(tmp_path)
    report = tried(ledger, seeds(5, 15), faults=faults)
    kinds = ("lost", "doubled", "foreign")
    found = [one for failure in report.failures for one in failure.differences]
    assert {kind for one in found for kind in kinds if getattr(one, kind)} == wrong
    assert report.ok is (not wrong)


def test_the_story_says_before_which_line_a_commit_was_cut_off(tmp_path: Path) -> None:
    ledger = NotedBefore(tmp_path)
    report = tried(ledger, seeds(5, 15), faults=CUT)
    lines = Path(__file__).read_text().splitlines()
    cuts = [
        int(line)
        for failure in report.failures
        for story in failure.story
        for line in re.findall(
            r"FAULT: commit of ledger, by checkpoint \d+, is cut off before test_\w+\.py:(\d+)", story
        )
    ]
    behind = {"super().commit(transaction)", "staged = self.folder / transaction", "if staged.exists():"}
    assert behind & {lines[cut - 1].strip() for cut in cuts}


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
    ledger = Forgetful(tmp_path)
    report = tried(ledger, range(5), outputs={output: ledger.rows})
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
    ledger = kind(tmp_path)
    report = tried(ledger, range(3), outputs={"ledger": lambda: [{"id": id_} for id_ in ledger.rows()]})
    assert report.ok is ok
    assert report.compared == (
        "sink 'ledger' (ledger) is kept: without faults, the 200 row(s) that reach it were compared "
        "with its output by id ('k' is not in it; 't' is not in it)",
    )
    if not ok:
        [found] = report.failures[0].differences
        assert 100 < sum(found.lost.values()) < 200
        assert (found.columns, found.doubled, found.foreign) == (("id",), {}, {})
        assert report.failures[0].reason.startswith(
            "sink 'ledger' (ledger) shows other rows than those that reach it"
        )


def test_check_judges_a_sink_that_is_kept(tmp_path: Path) -> None:
    ledger = EveryOther(tmp_path)
    report = tried(
        ledger,
        range(3),
        outputs={"ledger": ledger.rows},
        check=lambda results: results["ledger"].num_rows < 100,
    )
    report.raise_for_failures()
    assert report.compared == ()


def test_a_commit_that_fails_for_ever_is_named_soon(tmp_path: Path) -> None:
    ledger = OnceOnly(tmp_path)
    report = tried(ledger, seeds(4, 10), faults=Faults(kill_every_ms=400))
    found = [one for one in report.failures if one.reason.startswith("the job keeps failing: 20 times")]
    assert found
    for failure in found:
        assert "operator 'ledger committer' (uid 'ledger-committer')" in failure.reason
        assert "FileExistsError" in failure.reason
    assert not any("events and no end" in failure.reason for failure in report.failures)


def in_files(folder: Path) -> pa.Table:
    files = [f for f in folder.rglob("*.parquet") if not f.name.startswith((".", "_"))]
    files = [f for f in files if not any(part.startswith((".", "_")) for part in f.relative_to(folder).parts)]
    return pa.concat_tables([NOTHING, *(pq.read_table(f, columns=["id"], partitioning=None) for f in files)])


def in_delta(folder: Path) -> pa.Table:
    if not folder.exists():
        return NOTHING
    files = [uri.removeprefix("file://") for uri in DeltaTable(folder).file_uris()]
    return pa.concat_tables([NOTHING, *(pq.read_table(f, columns=["id"], partitioning=None) for f in files)])


@pytest.mark.parametrize(
    ("sink", "rows"),
    [
        pytest.param(lambda at: us.FileSink(at, target_file_bytes=1_000), in_files, id="files"),
        pytest.param(us.DeltaSink, in_delta, id="delta"),
    ],
)
def test_sinks_of_this_package_may_be_cut_off_anywhere(
    tmp_path: Path, sink: Callable[[str], Sink], rows: Callable[[Path], pa.Table]
) -> None:
    folder = tmp_path / "out"
    report = simulate(
        lambda env: events(env).sink_to(sink(str(folder))).uid("out"),
        seeds=seeds(5, 15),
        faults=CUT,
        keep_sinks=True,
        outputs={"out": lambda: rows(folder)},
        reset=lambda: shutil.rmtree(folder, ignore_errors=True),
        story=True,
    )
    report.raise_for_failures()
    assert report.restarts > 2 * report.seeds
    assert any("FAULT: commit of out" in line for line in report.story)
