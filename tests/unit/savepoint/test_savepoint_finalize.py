"""What a savepoint lists is committed without its job: real tables and folders, and sinks of users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.iceberg_lake import TABLE, Lake
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, CorruptSnapshot, Fenced, OutcomeUnknown
from unistream.base.ids import AttemptId, CheckpointId, JobId, LeaderEpoch, LineageId, OperatorUid, VertexId
from unistream.connector.collect import read_collected
from unistream.model.codec import decode_manifest, encode_manifest
from unistream.model.elements import Batch
from unistream.model.positions import SourcePositions, encode_positions
from unistream.operator.sink import Committables, Due
from unistream.operator.sink.committables import announce
from unistream.port.metrics import Uncounted
from unistream.port.operator import CommitPermit
from unistream.port.sink import (
    CommitOutcome,
    CommitRequest,
    CommitResult,
    CommittableStage,
    Committer,
    Sink,
    SinkContext,
    SinkWriter,
)
from unistream.savepoint.finalize import Outcome, finalize
from unistream.savepoint.pending import Known, PendingCommits, Step, pending, plan_commits

LINEAGE = LineageId("lineage")
JOB = JobId("0" * 32)


def context(restored: int | None = None, attempt: int = 0) -> SinkContext:
    return SinkContext(
        job=JOB,
        lineage=LINEAGE,
        sink_uid=OperatorUid("out"),
        attempt=AttemptId(JOB, VertexId("1" * 32), 0, attempt),
        index=0,
        parallelism=1,
        restored=None if restored is None else CheckpointId(restored),
        metrics=Uncounted(),
    )


def permit(checkpoint: int) -> CommitPermit:
    return CommitPermit(lineage=LINEAGE, checkpoint_id=CheckpointId(checkpoint), epoch=LeaderEpoch(1))


def staged(sink: Sink, checkpoint: int, *ids: int) -> list[bytes]:
    writer = sink.create_writer()
    writer.open(context(), [])
    writer.write(Batch(pa.RecordBatch.from_arrays([pa.array(ids, pa.int64())], names=["id"])))
    writer.flush(end_of_input=False)
    return list(writer.prepare_commit(CheckpointId(checkpoint)))


def listed(by_checkpoint: dict[int, list[bytes]], sink_uid: str = "out", connector: str = "") -> bytes:
    """A committer's list, as its snapshot has it."""
    committables = Committables("out")
    for checkpoint, payloads in by_checkpoint.items():
        committables.add(announce(checkpoint, 0, 1, payloads))
    [item] = committables.encoded(max(by_checkpoint), sink_uid, connector)
    return item


def savepoint(folder: Path, lists: dict[str, bytes], **changes: Any) -> us.Savepoint:
    """Of checkpoint 2."""
    writer = us.SavepointWriter()
    for uid, item in lists.items():
        writer.with_list(uid, "committables", [item])
    path = Path(writer.write(folder))
    manifest = decode_manifest((path / "_metadata").read_bytes())
    changed = msgspec.structs.replace(
        manifest, **{"lineage": LINEAGE, "checkpoint_id": CheckpointId(2), **changes}
    )
    (path / "_metadata").write_bytes(encode_manifest(changed))
    return us.read_savepoint(path)


@dataclass(frozen=True)
class Place:
    sink: Sink
    connector: str
    read: Callable[[], list[int]]


def delta(folder: Path) -> Place:
    uri = str(folder / "table")

    def read() -> list[int]:
        if not DeltaTable.is_deltatable(uri):
            return []
        return sorted(DeltaTable(uri).to_pyarrow_table()["id"].to_pylist())

    return Place(us.DeltaSink(uri), "delta", read)


def files(folder: Path) -> Place:
    root = folder / "files"

    def read() -> list[int]:
        found = [pq.ParquetFile(path).read()["id"].to_pylist() for path in root.rglob("part-*.parquet")]
        return sorted(one for ids in found for one in ids)

    return Place(us.FileSink(str(root)), "files", read)


def collect(folder: Path) -> Place:
    root = folder / "collected"

    def read() -> list[int]:
        if not (root / "commits").is_dir() or not list((root / "commits").iterdir()):
            return []
        return sorted(read_collected(str(root))["id"].to_pylist())

    return Place(us.CollectSink(str(root)), "collect", read)


def iceberg(folder: Path) -> Place:
    lake = Lake(folder / "iceberg")
    (folder / "iceberg").mkdir()
    return Place(us.IcebergSink(TABLE, catalog_properties=lake.properties), "iceberg", lake.ids)


@pytest.fixture(params=[delta, files, collect, iceberg])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    made: Place = request.param(tmp_path)
    return made


class TestBuiltInSinks:
    def test_what_two_checkpoints_left_is_committed_once(self, place: Place, tmp_path: Path) -> None:
        item = listed(
            {1: staged(place.sink, 1, 1, 2), 2: staged(place.sink, 2, 3)}, connector=place.connector
        )
        path = savepoint(tmp_path / "sp", {"out-committer": item}).path
        assert place.read() == []

        found = us.finalize_savepoint(path)
        [commit] = found.commits
        assert (commit.outcome, commit.checkpoints, commit.rows) == (Outcome.COMMITTED, (1, 2), 3)
        assert (commit.sink, commit.operator, commit.connector) == ("out", "out-committer", place.connector)
        assert found.is_complete
        assert place.read() == [1, 2, 3]

        again = us.finalize_savepoint(path)
        assert [one.outcome for one in again.commits] == [Outcome.ALREADY_COMMITTED]
        assert again.had_nothing_to_do
        assert place.read() == [1, 2, 3]

    def test_a_job_that_is_restored_later_finds_it_committed(self, place: Place, tmp_path: Path) -> None:
        payloads = staged(place.sink, 2, 1, 2)
        item = listed({2: payloads}, connector=place.connector)
        saved = savepoint(tmp_path / "sp", {"out-committer": item})
        us.finalize_savepoint(saved.path)

        committer = place.sink.create_committer()
        assert committer is not None
        committer.open(replace(context(restored=2), predecessor=saved.manifest.job))
        request = CommitRequest(CheckpointId(2), tuple(payloads))
        assert committer.commit(permit(2), request).outcome is CommitOutcome.ALREADY_COMMITTED
        committer.commit(permit(3), CommitRequest(CheckpointId(3), tuple(staged(place.sink, 3, 4))))
        assert place.read() == [1, 2, 4]

    def test_a_sink_that_has_gone_on_since_is_left_alone(self, place: Place, tmp_path: Path) -> None:
        payloads = staged(place.sink, 2, 1, 2)
        item = listed({2: payloads}, connector=place.connector)
        committer = place.sink.create_committer()
        assert committer is not None
        committer.open(context())
        for number, given in ((2, payloads), (3, staged(place.sink, 3, 4))):
            committer.commit(permit(number), CommitRequest(CheckpointId(number), tuple(given)))

        found = us.finalize_savepoint(savepoint(tmp_path / "sp", {"out-committer": item}).path)
        assert found.had_nothing_to_do, found
        assert len(found.commits) == 1
        assert place.read() == [1, 2, 4]

    def test_a_staged_file_that_is_gone_is_told_and_nothing_is_committed(
        self, place: Place, tmp_path: Path
    ) -> None:
        item = listed({2: staged(place.sink, 2, 1, 2)}, connector=place.connector)
        staged_files = [
            path
            for path in tmp_path.rglob("*")
            if path.suffix in {".parquet", ".arrow", ".staged"} and path.is_file()
        ]
        assert staged_files
        staged_files[0].unlink()
        found = us.finalize_savepoint(savepoint(tmp_path / "sp", {"out-committer": item}).path)
        [commit] = found.commits
        assert commit.outcome is Outcome.ERROR
        assert "is missing" in commit.reason
        assert not found.is_complete
        assert place.read() == []

    def test_a_dry_run_touches_nothing(self, place: Place, tmp_path: Path) -> None:
        item = listed({2: staged(place.sink, 2, 1, 2)}, connector=place.connector)
        before = sorted(tmp_path.rglob("*"))
        saved = savepoint(tmp_path / "sp", {"out-committer": item})
        found = us.finalize_savepoint(saved.path, dry_run=True)
        assert [one.outcome for one in found.commits] == [Outcome.PENDING]
        assert place.read() == []
        assert sorted(p for p in tmp_path.rglob("*") if "sp" not in p.relative_to(tmp_path).parts) == before

    def test_it_agrees_with_inspect(self, place: Place, tmp_path: Path) -> None:
        item = listed({1: staged(place.sink, 1, 1), 2: staged(place.sink, 2, 3)}, connector=place.connector)
        saved = savepoint(tmp_path / "sp", {"out-committer": item})
        shown = [(one.uid, one.checkpoint_id, one.committables) for one in saved.pending_commits]
        [commit] = us.finalize_savepoint(saved.path, dry_run=True).commits
        assert shown == [(commit.operator, number, 1) for number in commit.checkpoints]

    def test_the_savepoint_of_a_drain_that_is_committed(self, place: Place, tmp_path: Path) -> None:
        """The drain took 3 behind it, and committed what 2 lists with it."""
        payloads = staged(place.sink, 2, 1)
        committer = place.sink.create_committer()
        assert committer is not None
        committer.open(context())
        committer.commit(permit(3), CommitRequest(CheckpointId(2), tuple(payloads)))
        committer.commit(permit(3), CommitRequest(CheckpointId(3), tuple(staged(place.sink, 3, 2))))
        item = listed({2: payloads}, connector=place.connector)
        saved = savepoint(tmp_path / "sp", {"out-committer": item}, resumes_after=CheckpointId(3))
        found = us.finalize_savepoint(saved.path)
        assert found.had_nothing_to_do
        assert found.advice == "the drain that took this savepoint (checkpoint 3) has committed it"
        assert place.read() == [1, 2]


def test_a_commit_outside_of_the_job_records_the_positions_of_its_sources(tmp_path: Path) -> None:
    sink, uid = us.DeltaSink(str(tmp_path / "table")), OperatorUid("out-committer")
    item = listed({2: staged(sink, 2, 1)}, connector="delta")
    at = SourcePositions(uid=OperatorUid("in"), connector="kafka", name="t", offsets={"0": 7})
    us.finalize_savepoint(savepoint(tmp_path / "sp", {uid: item}, positions={uid: (at,)}).path)
    newest = DeltaTable(str(tmp_path / "table")).history(1)[0]
    assert newest["unistream.source-positions"] == encode_positions([at])


def test_a_snapshot_outside_of_the_job_records_the_positions_of_its_sources(tmp_path: Path) -> None:
    lake, uid = Lake(tmp_path), OperatorUid("out-committer")
    item = listed(
        {2: staged(us.IcebergSink(TABLE, catalog_properties=lake.properties), 2, 1)}, connector="iceberg"
    )
    at = SourcePositions(uid=OperatorUid("in"), connector="kafka", name="t", offsets={"0": 7})
    us.finalize_savepoint(savepoint(tmp_path / "sp", {uid: item}, positions={uid: (at,)}).path)
    assert lake.summaries()[-1]["unistream.source-positions"] == encode_positions([at])


def test_a_table_that_must_exist_is_not_made_anew(tmp_path: Path) -> None:
    sink = us.DeltaSink(str(tmp_path / "table"), create=False)
    item = listed({2: staged(sink, 2, 1)}, connector="delta")
    [commit] = us.finalize_savepoint(savepoint(tmp_path / "sp", {"out-committer": item}).path).commits
    assert commit.outcome is Outcome.ERROR
    assert "create=False" in commit.reason
    assert not DeltaTable.is_deltatable(str(tmp_path / "table"))


# --- decisions ----------------------------------------------------------------------------------------


def known(uid: str, sink: str) -> Known:
    return Known(uid=OperatorUid(uid), sink_uid=OperatorUid(sink), belongs_to=OperatorUid(sink))


class TestDecision:
    def test_nothing_is_pending(self, tmp_path: Path) -> None:
        found = us.finalize_savepoint(savepoint(tmp_path / "sp", {}).path)
        assert found.commits == ()
        assert found.is_complete

    def test_checkpoints_ascend_and_later_ones_are_not_permitted(self) -> None:
        items = [listed({3: [b"c"], 1: [b"a"]}), listed({2: [b"b"], 1: [b"A"]})]
        [found] = pending([(OperatorUid("x"), items)], CheckpointId(2))
        assert found.due == (Due(CheckpointId(1), (b"a", b"A")), Due(CheckpointId(2), (b"b",)))

    def test_empty_checkpoints_are_nothing(self) -> None:
        assert pending([(OperatorUid("x"), [listed({1: []})])], CheckpointId(2)) == []

    def test_a_list_that_cannot_be_read(self) -> None:
        with pytest.raises(CorruptSnapshot, match="cannot be read"):
            pending([(OperatorUid("x"), [b"\xc1"])], CheckpointId(2))

    def test_former_versions_did_not_say_who_commits(self) -> None:
        old = msgspec.msgpack.encode([{"checkpoint_id": 1, "subtask": 0, "announced": 1, "payloads": [b"a"]}])
        found = pending([(OperatorUid("x"), [old])], CheckpointId(2))
        assert [(one.sink_uid, one.connector) for one in found] == [(None, "")]
        with pytest.raises(ConfigError, match=r"how to commit the output of 'x': .*--pipeline"):
            plan_commits(found)

    def test_the_pipeline_is_preferred_to_the_name(self) -> None:
        due = (Due(CheckpointId(1), (b"a",)),)
        one = PendingCommits(uid=OperatorUid("x"), sink_uid=OperatorUid("old"), connector="delta", due=due)
        [plan] = plan_commits([one], [known("x", "new")])
        assert plan == (Step(uid=OperatorUid("x"), sink_uid=OperatorUid("new"), due=due),)
        [plan] = plan_commits([one], [])
        assert [(step.sink_uid, step.connector) for step in plan] == [("old", "delta")]

    def test_a_pipeline_without_the_sink(self) -> None:
        one = PendingCommits(
            uid=OperatorUid("x"), sink_uid=None, connector="", due=(Due(CheckpointId(1), (b"a",)),)
        )
        with pytest.raises(ConfigError, match="no committer with uid 'x'; it has 'y'"):
            plan_commits([one], [known("y", "sink")])

    def test_half_of_a_savepoint_is_never_committed_for_want_of_a_name(self, tmp_path: Path) -> None:
        place = delta(tmp_path)
        good = listed({2: staged(place.sink, 2, 1)}, connector="delta")
        saved = savepoint(
            tmp_path / "sp", {"out-committer": good, "own-committer": listed({2: [b"t"]}, "own")}
        )
        with pytest.raises(ConfigError, match="'own-committer'"):
            us.finalize_savepoint(saved.path)
        assert place.read() == []

    def test_a_connector_that_is_not_installed(self, tmp_path: Path) -> None:
        saved = savepoint(tmp_path / "sp", {"own-committer": listed({2: [b"t"]}, "own", "pulsar")})
        with pytest.raises(
            ConfigError, match="'pulsar' is not installed; installed are collect, delta, file, "
        ):
            us.finalize_savepoint(saved.path)


PLUGIN = """
from unistream import ConnectorInfo
from unistream.port.sink import CommitOutcome, CommitResult

class Noted:
    connector = "noted"

    def open(self, context):
        self.uid = context.sink_uid

    def commit(self, permit, request):
        for path in request.committables:
            with open(path, "a") as file:
                file.write(f"{self.uid} {permit.lineage} {request.checkpoint_id}")
        return CommitResult(CommitOutcome.COMMITTED)

    def close(self):
        pass

def committer_of(committables):
    return Noted()

CONNECTOR = ConnectorInfo(summary="Noted.", committer="noted_sink:committer_of")
"""


@pytest.mark.parametrize(
    "entry_point",
    [
        pytest.param("[unistream.connectors]\nnoted = noted_sink:CONNECTOR\n", id="a ConnectorInfo"),
        pytest.param("[unistream.committers]\nnoted = noted_sink:committer_of\n", id="the function alone"),
    ],
)
def test_installed_packages_add_committers(
    entry_point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "noted-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: noted\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entry_point)
    (tmp_path / "noted_sink.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    item = listed({2: [str(tmp_path / "note").encode()]}, "own", "noted")
    us.finalize_savepoint(savepoint(tmp_path / "sp", {"own-committer": item}).path)
    assert (tmp_path / "note").read_text() == "own lineage 2"


# --- sinks of users, by their pipeline ----------------------------------------------------------------


@dataclass
class Own:
    """Answers as configured, and logs."""

    log: list[tuple[str, int, tuple[bytes, ...]]]
    answers: list[CommitResult | Exception] = field(default_factory=list)
    name: str = "own"
    global_committer: bool = False

    def check(self, schema: pa.Schema | None) -> None: ...

    def create_writer(self) -> SinkWriter:
        raise AssertionError("nothing is written")

    def create_committer(self) -> Committer | None:
        return Logging(self, "commit")


@dataclass
class Logging:
    sink: Own
    what: str

    def open(self, context: SinkContext) -> None:
        assert context.finalizing

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        assert permit.lineage == LINEAGE
        self.sink.log.append((self.what, request.checkpoint_id, request.committables))
        answer = self.sink.answers.pop(0) if self.sink.answers else CommitResult(CommitOutcome.COMMITTED)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def process(self, checkpoint_id: CheckpointId, committables: Sequence[bytes]) -> Sequence[bytes]:
        self.sink.log.append((self.what, checkpoint_id, tuple(committables)))
        return [payload + b"!" for payload in committables]

    def close(self) -> None:
        self.sink.log.append((f"close {self.what}", 0, ()))


class Deep(Own):
    """With something behind its commits."""

    def post_commit_stages(self) -> Sequence[CommittableStage]:
        return [CommittableStage(name="after", create=lambda: Logging(self, "after"))]

    def create_global_committer(self) -> Committer:
        return Logging(self, "global")


def pipeline(*sinks: Sink) -> Callable[[us.Environment], None]:
    def build(env: us.Environment) -> None:
        rows = us.StaticSource(pa.table({"id": pa.array([1], pa.int64())}))
        stream = env.from_source(rows, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
        for number, sink in enumerate(sinks):
            stream.sink_to(sink).uid(f"own{number}")

    return build


class TestOwnSinks:
    def test_by_the_pipeline(self, tmp_path: Path) -> None:
        sink = Own([])
        saved = savepoint(tmp_path / "sp", {"own0-committer": listed({2: [b"b"], 1: [b"a"]}, "own0")})
        [commit] = us.finalize_savepoint(saved.path, pipeline(sink)).commits
        assert commit.outcome is Outcome.COMMITTED
        assert sink.log == [("commit", 1, (b"a",)), ("commit", 2, (b"b",)), ("close commit", 0, ())]

    @pytest.mark.parametrize(
        ("answers", "outcome", "reason"),
        [
            ([CommitResult(CommitOutcome.RETRY)], Outcome.COMMITTED, ""),
            ([CommitResult(CommitOutcome.RETRY)] * 11, Outcome.ERROR, "in 11 attempts"),
            ([CommitResult(CommitOutcome.ALREADY_COMMITTED)], Outcome.ALREADY_COMMITTED, ""),
            ([CommitResult(CommitOutcome.FAILED, reason="gone")], Outcome.FAILED, "gone"),
            (
                [CommitResult(CommitOutcome.COMMITTED, failed=(b"a",), reason="half")],
                Outcome.FAILED,
                "half",
            ),
            ([OutcomeUnknown("perhaps")], Outcome.UNKNOWN, "perhaps"),
            ([Fenced("another")], Outcome.ERROR, "another"),
            ([KeyError("a bug")], Outcome.ERROR, "a bug"),
        ],
        ids=["retry", "retried to the end", "already", "failed", "one failed", "unknown", "fenced", "bug"],
    )
    def test_outcomes_of_one_do_not_keep_the_other_back(
        self,
        tmp_path: Path,
        answers: list[CommitResult | Exception],
        outcome: Outcome,
        reason: str,
    ) -> None:
        first, second = Own([], list(answers)), Own([])
        lists = {f"own{n}-committer": listed({2: [b"a", b"b"]}, f"own{n}") for n in range(2)}
        found = us.finalize_savepoint(savepoint(tmp_path / "sp", lists).path, pipeline(first, second))
        reported = {commit.sink: commit for commit in found.commits}
        assert reported["own0"].outcome is outcome
        assert reason in reported["own0"].reason
        assert reported["own1"].outcome is Outcome.COMMITTED
        assert found.is_complete == (outcome in {Outcome.COMMITTED, Outcome.ALREADY_COMMITTED})
        assert first.log[-1] == ("close commit", 0, ())

    def test_what_stands_behind_the_committer_gets_what_was_committed(self, tmp_path: Path) -> None:
        sink = Deep([], [CommitResult(CommitOutcome.COMMITTED, failed=(b"b",))])
        lists = {
            "own0-committer": listed({2: [b"a", b"b"]}, "own0"),
            "own0-post-commit-after": listed({1: [b"z"]}, "own0"),
        }
        found = us.finalize_savepoint(savepoint(tmp_path / "sp", lists).path, pipeline(sink))
        assert [entry for entry in sink.log if not entry[0].startswith("close")] == [
            ("commit", 2, (b"a", b"b")),
            ("after", 1, (b"z",)),
            ("after", 2, (b"a",)),
            ("global", 1, (b"z!",)),
            ("global", 2, (b"a!",)),
        ]
        assert [commit.outcome for commit in found.commits] == [
            Outcome.FAILED,
            Outcome.COMMITTED,
            Outcome.COMMITTED,
        ]

    def test_what_stands_behind_a_committer_that_did_not_succeed_waits(self, tmp_path: Path) -> None:
        sink = Deep([], [OutcomeUnknown("perhaps")])
        saved = savepoint(tmp_path / "sp", {"own0-committer": listed({2: [b"a"]}, "own0")})
        found = us.finalize_savepoint(saved.path, pipeline(sink))
        assert [commit.outcome for commit in found.commits] == [Outcome.UNKNOWN]
        assert [entry[0] for entry in sink.log] == ["commit", "close commit"]

    def test_retries_are_configured(self, tmp_path: Path) -> None:
        sink = Own([], [CommitResult(CommitOutcome.RETRY)])
        saved = savepoint(tmp_path / "sp", {"own0-committer": listed({2: [b"a"]}, "own0")})
        config = Configuration({"sink.committer.retries": "0"})
        [commit] = us.finalize_savepoint(saved.path, pipeline(sink), config=config).commits
        assert commit.outcome is Outcome.ERROR


def test_the_shell_alone_needs_no_pipeline(tmp_path: Path) -> None:
    place = files(tmp_path)
    saved = savepoint(
        tmp_path / "sp", {"out-committer": listed({2: staged(place.sink, 2, 1)}, connector="files")}
    )
    assert finalize(saved, Configuration()).is_complete
    assert place.read() == [1]
