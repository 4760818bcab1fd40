"""What every sink that records its line of jobs has to do: of all jobs that could go on, one does."""

from __future__ import annotations

import json
import random
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

import unistream as us
from tests.contract.sinks.case import Case, batch, permit, request
from tests.contract.sinks.test_sink_exactly_once import (
    delta,
    delta_partitioned,
    delta_upsert,
    files,
    files_json,
    files_partitioned,
    iceberg,
    iceberg_upsert,
    kafka_topic,
    sqlite,
)
from tests.integration.crash_runs import MATRIX, OF_MATRIX, in_the_gate
from unistream.base.errors import ConfigError, Fenced
from unistream.base.ids import AttemptId, CheckpointId, JobId, LineageId, OperatorUid, VertexId
from unistream.connector.kafka import KafkaSink
from unistream.model.elements import Batch
from unistream.port.line import Followed, KeepsLine
from unistream.port.sink import CommitResult, Committer, SinkContext, SinkWriter, StatefulCommitter
from unistream.testing.harness.operators import CountingMetrics


class Ledger(us.TwoPhaseCommitSink[str]):
    """Rows in a database: those of a transaction count when its name is among the committed ones."""

    name = "ledger"
    global_committer = True

    def __init__(self, path: str, on_foreign: us.OnForeign) -> None:
        self._path = path
        self.on_foreign = on_foreign
        with closing(self._connect()) as database, database:
            database.execute("CREATE TABLE IF NOT EXISTS staged (name TEXT, id INT)")
            database.execute("CREATE TABLE IF NOT EXISTS committed (name TEXT PRIMARY KEY)")
            database.execute("CREATE TABLE IF NOT EXISTS lines (content TEXT)")
            if not database.execute("SELECT * FROM lines").fetchall():
                database.execute("INSERT INTO lines VALUES ('[]')")

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30)

    def begin_transaction(self) -> str:
        return uuid.uuid4().hex

    def invoke(self, transaction: str, batch: Batch) -> None:
        with closing(self._connect()) as database, database:
            ids = [(transaction, id) for id in batch.records["id"].to_pylist()]
            database.executemany("INSERT INTO staged VALUES (?, ?)", ids)

    def commit(self, transaction: str) -> None:
        with closing(self._connect()) as database, database:
            database.execute("INSERT OR IGNORE INTO committed VALUES (?)", (transaction,))

    def abort(self, transaction: str) -> None:
        with closing(self._connect()) as database, database:
            database.execute("DELETE FROM staged WHERE name = ?", (transaction,))

    def line_commits(self) -> list[us.LineCommit]:
        with closing(self._connect()) as database:
            [(content,)] = database.execute("SELECT content FROM lines")
        return [us.LineCommit(**one) for one in json.loads(content)]

    def record_lines(self, lines: Sequence[us.LineCommit], expected: Sequence[us.LineCommit]) -> bool:
        new, old = (msgspec.json.encode(one).decode() for one in (lines, expected))
        with closing(self._connect()) as database, database:
            changed = database.execute("UPDATE lines SET content = ? WHERE content = ?", (new, old))
            return changed.rowcount == 1

    def read(self) -> list[int]:
        query = "SELECT id FROM staged JOIN committed ON staged.name = committed.name ORDER BY id"
        with closing(self._connect()) as database:
            return [id for (id,) in database.execute(query)]


def ledger(folder: Path, on_foreign: us.OnForeign = "refuse") -> Case:
    sink = Ledger(str(folder / "ledger.db"), on_foreign)
    return Case(sink, sink.read, lambda: 0)


SINKS = [
    *(delta, iceberg, files, sqlite, ledger),
    pytest.param("kafka", marks=pytest.mark.kafka),
    *(
        pytest.param(one, marks=OF_MATRIX)
        for one in (delta_upsert, iceberg_upsert, delta_partitioned, files_partitioned, files_json)
    ),
]
LINE, OTHER = LineageId("line-1"), LineageId("line-2")


@pytest.fixture(params=SINKS, ids=lambda make: getattr(make, "__name__", make))
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Case]]:
    """Makes cases of one target."""
    made: list[Case] = []

    def of_kafka(**options: Any) -> Case:
        if "on_foreign" in options:
            pytest.skip("any number of lines write a topic")
        if not made:
            made.append(kafka_topic(request.getfixturevalue("kafka"), seeing_all=True))
        return made[0]

    def of_folder(**options: Any) -> Case:
        made.append(request.param(tmp_path, **options))
        return made[-1]

    yield of_kafka if request.param == "kafka" else of_folder
    for case in made:
        for one in case.made:
            one.close()


def refuses_other_lines(case: Case) -> None:
    if isinstance(case.sink, KafkaSink):
        pytest.skip("any number of lines write a topic")


@dataclass(frozen=True)
class Snapshot:
    """`pending`: committables by the checkpoint that they were staged for, as the operator keeps them."""

    job: JobId
    lineage: LineageId
    checkpoint: int
    pending: dict[int, list[bytes]]
    state: tuple[bytes, ...]

    @property
    def committables(self) -> list[bytes]:
        return [one for staged in self.pending.values() for one in staged]


@dataclass
class Job:
    """A job with one row for each checkpoint. Its committer and its writer open with it."""

    case: Case
    name: str
    since: Snapshot | None = None
    lineage: LineageId = LINE
    attempt: int = 0
    pending: dict[int, list[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        since = self.since
        self.id = JobId(self.name * 32)
        self.last = 0 if since is None else since.checkpoint
        self.lineage = self.lineage if since is None else since.lineage
        made = self.case.sink.create_committer()
        assert made is not None
        self.committer: Committer = made
        self.case.made.append(made)
        if since is not None and isinstance(made, StatefulCommitter):
            made.restore_state(since.state)
        made.open(self.context)
        self.writer: SinkWriter = self.case.sink.create_writer()
        self.case.made.append(self.writer)
        self.writer.open(self.context, [])
        if since is not None:
            self.pending = dict(since.pending)
            self.commit_pending()

    @property
    def context(self) -> SinkContext:
        since = self.since
        return SinkContext(
            job=self.id,
            lineage=self.lineage,
            sink_uid=OperatorUid("the sink"),
            attempt=AttemptId(self.id, VertexId("1" * 32), 0, self.attempt),
            index=0,
            parallelism=1,
            restored=None if since is None else CheckpointId(since.checkpoint),
            metrics=CountingMetrics(),
            predecessor=None if since is None else since.job,
        )

    def snapshot(self, *rows: int) -> Snapshot:
        """Takes the next checkpoint, which nobody has committed yet."""
        self.last += 1
        if rows:
            self.writer.write(batch(*rows))
        self.writer.flush(end_of_input=False)
        staged = list(self.writer.prepare_commit(CheckpointId(self.last))) if rows else []
        self.writer.snapshot_state(CheckpointId(self.last))
        self.pending[self.last] = staged
        state = self.committer.snapshot_state() if isinstance(self.committer, StatefulCommitter) else ()
        return Snapshot(self.id, self.lineage, self.last, dict(self.pending), tuple(state))

    def commit(self, checkpoint: int, committables: Sequence[bytes]) -> CommitResult:
        result = self.committer.commit(permit(checkpoint, self.lineage), request(checkpoint, *committables))
        self.pending = {n: staged for n, staged in self.pending.items() if n > checkpoint}
        return result

    def commit_pending(self) -> None:
        for checkpoint, staged in sorted(self.pending.items()):
            if staged:
                self.commit(checkpoint, staged)

    def checkpoint(self, *rows: int) -> Snapshot:
        """Takes one and commits it."""
        taken = self.snapshot(*rows)
        if self.pending[self.last]:
            self.commit(self.last, self.pending[self.last])
        return taken


def test_another_line_is_refused_and_told_the_way_out(make: Callable[..., Case]) -> None:
    case = make()
    refuses_other_lines(case)
    Job(case, "a").checkpoint(1)
    attempts: list[Callable[[], object]] = [lambda: Job(case, "b", lineage=OTHER)]
    if isinstance(case.sink, KeepsLine):
        attempts += [case.sink.check_new_line, partial(case.sink.check_new_line, OTHER)]
        case.sink.check_new_line(LINE)
    else:
        attempts.append(case.writer)
    for attempt in attempts:
        with pytest.raises(ConfigError, match=r"last job a{32} \(checkpoint 1\).*on_foreign='append'"):
            attempt()
    assert case.read() == [1]


def test_another_line_appends_if_the_sink_says_so_and_the_first_one_goes_on(
    make: Callable[..., Case],
) -> None:
    first = Job(make(), "a")
    first.checkpoint(1)
    second = make(on_foreign="append")
    if isinstance(second.sink, KeepsLine):
        second.sink.check_new_line()
    other = Job(second, "b", lineage=OTHER)
    kept = other.checkpoint(2)
    first.checkpoint(3)
    Job(second, "c", since=kept).checkpoint(4)
    assert second.read() == [1, 2, 3, 4]


def test_of_two_lines_that_begin_at_once_one_commits(make: Callable[..., Case]) -> None:
    case = make()
    refuses_other_lines(case)
    first, second = Job(case, "a"), Job(case, "b", lineage=OTHER)
    second.checkpoint(1)
    with pytest.raises(ConfigError, match="another line of jobs"):
        first.checkpoint(1)
    assert case.read() == [1]


def test_a_successor_goes_on(make: Callable[..., Case]) -> None:
    case = make()
    saved = Job(case, "a").checkpoint(1)
    second = Job(case, "b", since=saved)
    second.checkpoint(2)
    assert Job(case, "b", since=second.checkpoint(3), attempt=1).checkpoint(4)
    assert case.read() == [1, 2, 3, 4]


def test_the_target_names_the_last_commit_of_a_sink(make: Callable[..., Case]) -> None:
    case = make()
    if not isinstance(case.sink, KeepsLine):
        pytest.skip("asks when its first writer opens")
    assert case.sink.last_commit("the sink") is None
    saved = Job(case, "a").checkpoint(1)
    last = case.sink.last_commit("the sink")
    assert (last and (last.lineage, last.job, last.checkpoint)) == (LINE, "a" * 32, 1)
    Job(case, "b", since=saved).checkpoint(2)
    last = case.sink.last_commit("the sink")
    assert (last and (last.job, last.checkpoint)) == ("b" * 32, 2)
    assert case.sink.last_commit("another sink") is None


def test_of_several_lines_the_one_that_committed_last_is_named(make: Callable[..., Case]) -> None:
    case = make(on_foreign="append")
    if not isinstance(case.sink, KeepsLine):
        pytest.skip("asks when its first writer opens")
    first, second = Job(case, "a"), Job(case, "b", lineage=OTHER)
    for job in (first, second, first):
        job.checkpoint(job.last + 1)
        last = case.sink.last_commit("the sink")
        assert (last and (last.lineage, last.job)) == (job.lineage, job.id)


@pytest.mark.parametrize("faster", [0, 1], ids=["the first", "the second"])
def test_of_two_successors_that_run_at_once_one_commits(make: Callable[..., Case], faster: int) -> None:
    case = make()
    saved = Job(case, "a").checkpoint(1)
    both = [Job(case, "b", since=saved), Job(case, "c", since=saved)]
    winner, loser = both[faster], both[1 - faster]
    winner.checkpoint(2)
    with pytest.raises(ConfigError, match=f"job {winner.name}{{32}} writes the output of sink 'the sink'"):
        loser.checkpoint(2)
    winner.checkpoint(3)
    with pytest.raises(ConfigError, match="restored from checkpoint 1"):
        Job(case, loser.name, since=saved, attempt=1)
    assert case.read() == [1, 2, 3]


def test_who_was_succeeded_commits_nothing_more(make: Callable[..., Case]) -> None:
    case = make()
    old = Job(case, "a")
    saved = old.checkpoint(1)
    waiting = old.snapshot(5)
    Job(case, "b", since=saved).checkpoint(2)
    with pytest.raises(Fenced, match=r"job b{32} has taken over"):
        old.commit(2, waiting.committables)
    with pytest.raises(Fenced, match=r"job b{32} has taken over"):
        Job(case, "a", since=waiting, attempt=1)
    with pytest.raises(ConfigError, match=r"job b{32} writes"):
        Job(case, "c", since=waiting)
    assert case.read() == [1, 2]


def test_a_successor_that_committed_nothing_is_followed_as_well(make: Callable[..., Case]) -> None:
    case = make()
    saved = Job(case, "a").checkpoint(1)
    idle = Job(case, "b", since=saved).checkpoint()
    again = Job(case, "c", since=idle).checkpoint()
    Job(case, "d", since=again).checkpoint(2)
    assert case.read() == [1, 2]


def test_a_sibling_that_committed_nothing_is_in_nobodys_way(make: Callable[..., Case]) -> None:
    case = make()
    saved = Job(case, "a").checkpoint(1)
    Job(case, "b", since=saved)
    Job(case, "c", since=saved).checkpoint(2)
    assert case.read() == [1, 2]


def test_a_snapshot_from_before_its_commit_is_continued_behind_it(make: Callable[..., Case]) -> None:
    case = make()
    first = Job(case, "a", since=Job(case, "z").checkpoint(1))
    saved = first.snapshot(2)  # its state was stored before job a had committed anything
    first.commit(2, saved.committables)
    idle = Job(case, "b", since=saved).checkpoint()
    Job(case, "c", since=idle).checkpoint(3)
    assert case.read() == [1, 2, 3]


def test_what_the_predecessor_had_not_committed_is_in_no_successors_way(make: Callable[..., Case]) -> None:
    """All who commit what a snapshot lists commit the same, once; also one that is killed right after it."""
    case = make()
    old = Job(case, "a")
    old.checkpoint(1)
    saved = old.snapshot(2)
    Job(case, "b", since=saved)
    Job(case, "b", since=saved, attempt=1)
    last = Job(case, "c", since=saved)
    old.commit(2, saved.committables)
    assert case.read() == [1, 2]
    last.checkpoint(3)
    with pytest.raises(Fenced, match=r"job c{32} has taken over"):
        old.checkpoint(4)
    with pytest.raises(ConfigError, match="restored from checkpoint 2"):
        Job(case, "b", since=saved, attempt=2)
    assert case.read() == [1, 2, 3]


def test_a_predecessor_that_still_ran_and_was_faster_is_not_taken_for_this_job(
    make: Callable[..., Case],
) -> None:
    case = make()
    old = Job(case, "a")
    started = Job(case, "b", since=old.checkpoint(1))
    old.checkpoint(2)
    with pytest.raises(ConfigError, match=r"job a{32} writes"):
        started.checkpoint(3)
    assert case.read() == [1, 2]


def test_a_job_whose_predecessor_went_on_by_itself_is_continued_by_nobody(make: Callable[..., Case]) -> None:
    case = make()
    old = Job(case, "a")
    branch = Job(case, "b", since=old.checkpoint(1))
    branch.snapshot(2)
    saved, idle = branch.snapshot(), Job(case, "c", since=old.snapshot()).checkpoint()
    old.checkpoint(3)
    for since in (saved, idle):
        with pytest.raises(ConfigError, match=r"job a{32} writes"):
            Job(case, "d", since=since)
    assert case.read() == [1, 3]


class Tree:
    """Jobs that start from any snapshot that any of them has taken, and run side by side. A checkpoint adds a
    row or none; a job's rows are those of the jobs that it continues, and its own."""

    def __init__(self, case: Case, chance: random.Random) -> None:
        self._case = case
        self._chance = chance
        self._row = iter(range(1, 1_000))
        self._names = iter("bcdefghijklmnopqrstuvwxyz")
        self._running = [Job(case, "a")]
        self._snapshots: list[tuple[Snapshot, list[int]]] = []
        self._newest: dict[str, tuple[Snapshot, list[int]]] = {}  # that a job restarts from
        self.rows_of: dict[str, list[int]] = {"a": []}

    def start(self) -> None:
        """A job, from any snapshot; it commits what that lists."""
        if self._snapshots:
            since = self._chance.choice(self._snapshots)
            self._begin(next(self._names), since, attempt=0)

    def kill(self) -> None:
        """A job is killed, and restarts from its newest snapshot, or from that which it was started from."""
        job = self._chance.choice(self._running)
        since = self._newest.get(job.name)
        if since is not None:
            self._running.remove(job)
            self._begin(job.name, since, attempt=job.attempt + 1)

    def checkpoint(self) -> None:
        """Of a job, which may not live to commit it."""
        chance, job = self._chance, self._chance.choice(self._running)
        new = [next(self._row)] if chance.random() < 0.7 else []
        self.rows_of[job.name] += new
        taken = (job.snapshot(*new), list(self.rows_of[job.name]))
        self._snapshots.append(taken)
        self._newest[job.name] = taken
        if new and chance.random() < 0.7:
            job.commit_pending()

    def _begin(self, name: str, since: tuple[Snapshot, list[int]], *, attempt: int) -> None:
        taken, rows = since
        self.rows_of[name] = list(rows)
        self._newest[name] = since
        self._running.append(Job(self._case, name, since=taken, attempt=attempt))


@pytest.mark.parametrize("seed", in_the_gate(range(8), 0, 1, 4))
def test_whatever_jobs_start_from_whatever_snapshots_the_output_is_that_of_one_chain(
    make: Callable[..., Case], seed: int
) -> None:
    case, chance = make(), random.Random(seed)
    if isinstance(case.sink, KafkaSink) and seed and not MATRIX:
        pytest.skip("long: make crash-matrix")
    tree = Tree(case, chance)
    seen: list[int] = []
    for _ in range(30):
        step = chance.choices([tree.start, tree.kill, tree.checkpoint], [20, 20, 60])[0]
        with suppress(ConfigError, Fenced):
            step()
        found = case.read()
        assert found[: len(seen)] == seen, "what was committed stays"
        assert any(found == rows[: len(found)] for rows in tree.rows_of.values()), (found, tree.rows_of)
        seen = found
    assert seen


def test_a_committer_of_transactions_takes_the_newest_of_several_memories(tmp_path: Path) -> None:
    """Committers beside each writer commit at their own pace, in any order of their subtasks."""
    committer = ledger(tmp_path).sink.create_committer()
    assert isinstance(committer, StatefulCommitter)
    memories = [msgspec.json.encode(Followed("job", until)) for until in (3, 5, 4)]
    committer.restore_state(memories)
    assert list(committer.snapshot_state()) == memories[1:2]
