"""The Delta sink against real tables on a local disk: races, unknown outcomes, kills, rewinds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake

from tests.eventually import WAIT_S
from unistream.base.crash_points import POINTS_VARIABLE
from unistream.base.errors import ConfigError, CorruptSnapshot, Fenced, OutcomeUnknown
from unistream.base.ids import AttemptId, CheckpointId, JobId, LeaderEpoch, LineageId, OperatorUid, VertexId
from unistream.connector.common import StageFiles
from unistream.connector.delta import DeltaSink
from unistream.connector.delta.committer import DeltaCommitter
from unistream.connector.delta.stage import decode_committable
from unistream.connector.delta.table import Conflict, DeltaSinkTable, TableCommit, Unknown
from unistream.model.elements import Batch
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitOutcome, CommitRequest, CommitResult, Committer, SinkContext
from unistream.testing.harness.operators import CountingMetrics

LINEAGE = LineageId("lineage-1")
ALREADY = CommitOutcome.ALREADY_COMMITTED


def context(uid: str = "sink", restored: int | None = None) -> SinkContext:
    job = JobId("0" * 32)
    return SinkContext(
        job=job,
        lineage=LINEAGE,
        sink_uid=OperatorUid(uid),
        attempt=AttemptId(job, VertexId("1" * 32), 0, 0),
        index=0,
        parallelism=1,
        restored=None if restored is None else CheckpointId(restored),
        metrics=CountingMetrics(),
    )


def stage(uri: str, checkpoint: int, *ids: int, uid: str = "sink") -> CommitRequest:
    writer = DeltaSink(uri).create_writer()
    writer.open(context(uid), ())
    writer.write(Batch(pa.RecordBatch.from_arrays([pa.array(ids, pa.int64())], names=["id"])))
    writer.flush(end_of_input=False)
    prepared = writer.prepare_commit(CheckpointId(checkpoint))
    writer.close()
    return CommitRequest(CheckpointId(checkpoint), tuple(prepared))


def committer(uri: str, uid: str = "sink", restored: int | None = None, **sink: Any) -> Committer:
    made = DeltaSink(uri, **sink).create_committer()
    assert made is not None
    made.open(context(uid, restored))
    return made


def commit(committer: Committer, request: CommitRequest) -> CommitResult:
    permit = CommitPermit(lineage=LINEAGE, checkpoint_id=request.checkpoint_id, epoch=LeaderEpoch(7))
    return committer.commit(permit, request)


def ids(uri: str) -> list[int]:
    return sorted(DeltaTable(uri).to_pyarrow_table().column("id").to_pylist())


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


# --- races ----------------------------------------------------------------------------------------


def test_a_commit_on_a_stale_snapshot_conflicts(uri: str) -> None:
    commit(committer(uri), stage(uri, 1, 1))
    fresh, stale = DeltaSinkTable.open(uri, {}), DeltaSinkTable.open(uri, {})
    assert fresh is not None
    assert stale is not None
    files = decode_committable(stage(uri, 2, 2).committables[0]).files
    same = TableCommit(files=files, app_id="unistream/x", version=2, committed_ms=1, metadata={})
    fresh.append(same)
    with pytest.raises(Conflict):
        stale.append(same)
    assert ids(uri) == [1, 2]


def test_a_commit_is_never_moved_onto_a_snapshot_that_was_not_looked_at(uri: str) -> None:
    """Not even behind another writer's: a newer branch of the same sink is another writer too."""
    commit(committer(uri), stage(uri, 1, 1))
    stale = DeltaSinkTable.open(uri, {})
    assert stale is not None
    commit(committer(uri, "other"), stage(uri, 1, 2, uid="other"))
    files = decode_committable(stage(uri, 2, 3).committables[0]).files
    with pytest.raises(Conflict):
        stale.append(TableCommit(files=files, app_id="unistream/x", version=2, committed_ms=1, metadata={}))
    assert ids(uri) == [1, 2]


def test_a_zombie_that_looked_before_its_successor_committed_does_nothing(uri: str) -> None:
    request = stage(uri, 1, 1)
    zombie, successor = committer(uri), committer(uri)
    commit(zombie, request)
    later = stage(uri, 2, 2)
    assert commit(successor, later).outcome is CommitOutcome.COMMITTED
    assert commit(zombie, later).outcome is ALREADY
    assert ids(uri) == [1, 2]


def test_two_committers_that_race_for_the_same_checkpoints_commit_each_once(uri: str) -> None:
    requests = [stage(uri, n, n * 10, n * 10 + 1) for n in range(1, 9)]
    start = threading.Barrier(2)

    def run() -> int:
        mine = committer(uri)
        start.wait(WAIT_S)
        return sum(commit(mine, request).outcome is CommitOutcome.COMMITTED for request in requests)

    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(run) for _ in range(2)]
        assert sum(one.result(WAIT_S) for one in done) >= len(requests)
    assert ids(uri) == sorted(n * 10 + k for n in range(1, 9) for k in (0, 1))


def test_two_sinks_and_a_compaction_share_one_table(uri: str) -> None:
    commit(committer(uri, "a"), stage(uri, 1, 0, uid="a"))
    start = threading.Barrier(3)

    def write(uid: str, first: int) -> None:
        mine = committer(uri, uid, restored=1 if uid == "a" else None)
        start.wait(WAIT_S)
        for n in range(2, 12):
            assert commit(mine, stage(uri, n, first + n, uid=uid)).outcome is CommitOutcome.COMMITTED

    def compact() -> None:
        start.wait(WAIT_S)
        for _ in range(3):
            DeltaTable(uri).optimize.compact()

    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(write, "a", 100), pool.submit(write, "b", 200), pool.submit(compact)]
        for job in jobs:
            job.result(WAIT_S)
    assert ids(uri) == [0, *range(102, 112), *range(202, 212)]


def test_the_loser_of_the_race_to_create_the_table_uses_the_winners(uri: str) -> None:
    start = threading.Barrier(2)

    def run(uid: str, row: int) -> None:
        mine, request = committer(uri, uid), stage(uri, 1, row, uid=uid)
        start.wait(WAIT_S)
        commit(mine, request)

    with ThreadPoolExecutor(2) as pool:
        for job in [pool.submit(run, "a", 1), pool.submit(run, "b", 2)]:
            job.result(WAIT_S)
    assert ids(uri) == [1, 2]


def test_a_recommit_is_recognised_after_compaction_vacuum_and_log_checkpoint(uri: str) -> None:
    requests = [stage(uri, n, n) for n in (1, 2, 3)]
    mine = committer(uri)
    for request in requests:
        commit(mine, request)
    table = DeltaTable(uri)
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    table.create_checkpoint()
    restored = committer(uri, restored=3)
    assert [commit(restored, request).outcome for request in requests] == [ALREADY] * 3
    assert ids(uri) == [1, 2, 3]


# --- the table changes ----------------------------------------------------------------------------


def test_a_column_added_between_two_commits_is_null_in_later_rows(uri: str) -> None:
    mine = committer(uri)
    commit(mine, stage(uri, 1, 1))
    DeltaTable(uri).alter.add_columns(Field("note", "string"))
    commit(mine, stage(uri, 2, 2))
    assert DeltaTable(uri).to_pyarrow_table().sort_by("id").to_pylist() == [
        {"id": 1, "note": None},
        {"id": 2, "note": None},
    ]


def test_a_table_replaced_by_another_schema_stops_the_commit(uri: str) -> None:
    mine = committer(uri)
    commit(mine, stage(uri, 1, 1))
    other = pa.table({"id": ["text"]})
    write_deltalake(uri, other, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(ConfigError, match="column 'id' is string, the stream's is int64"):
        commit(mine, stage(uri, 2, 2))
    assert DeltaTable(uri).to_pyarrow_table().equals(other)


def test_a_staged_file_of_another_size_stops_the_commit(uri: str) -> None:
    request = stage(uri, 1, 1)
    path = decode_committable(request.committables[0]).files[0].path
    with open(os.path.join(uri, path), "ab") as file:
        file.write(b"x")
    with pytest.raises(CorruptSnapshot, match=r"has \d+ B"):
        commit(committer(uri), request)
    assert not DeltaTable.is_deltatable(uri)


def test_a_table_that_must_exist_and_does_not_is_refused(uri: str) -> None:
    with pytest.raises(ConfigError, match="create=False"):
        committer(uri, create=False)
    assert not os.path.exists(uri)


# --- unknown outcomes -----------------------------------------------------------------------------


class AppliesThenFails(DeltaSinkTable):
    """The first commit lands, but its answer is lost."""

    left = 1

    def append(self, commit: TableCommit) -> None:
        super().append(commit)
        if type(self).left:
            type(self).left -= 1
            raise Unknown("the connection broke")


class FailsFirst(DeltaSinkTable):
    left = 2

    def append(self, commit: TableCommit) -> None:
        if type(self).left:
            type(self).left -= 1
            raise Unknown("the connection broke")
        super().append(commit)


class NeverAnswers(DeltaSinkTable):
    def append(self, commit: TableCommit) -> None:
        raise Unknown("the connection broke")


class AlwaysLoses(DeltaSinkTable):
    def append(self, commit: TableCommit) -> None:
        raise Conflict("someone else was faster")


class IsFollowedAtOnce(DeltaSinkTable):
    """Another writer commits right behind each commit."""

    def append(self, commit: TableCommit) -> None:
        super().append(commit)
        write_deltalake(self._uri, pa.table({"id": [99]}), mode="append")


def faulty(uri: str, tables: type[DeltaSinkTable]) -> DeltaCommitter:
    options: Mapping[str, str] = {}
    made = DeltaCommitter(
        table_uri=uri,
        partition_by=(),
        create=True,
        allow_rewind=False,
        append_to_foreign=False,
        storage_options=options,
        stage=StageFiles(uri, options, f"table {uri}"),
        tables=tables,
        attempts=4,
    )
    made.open(context())
    return made


@pytest.mark.parametrize("tables", [AppliesThenFails, FailsFirst], ids=["it had happened", "it had not"])
def test_after_an_unknown_outcome_the_table_tells(uri: str, tables: type[DeltaSinkTable]) -> None:
    result = commit(faulty(uri, tables), stage(uri, 1, 1, 2))
    assert (result.outcome, result.rows, result.table_version) == (CommitOutcome.COMMITTED, 2, 1)
    assert ids(uri) == [1, 2]


def test_the_version_of_a_commit_is_its_own_also_if_others_commit_behind_it(uri: str) -> None:
    committer = faulty(uri, IsFollowedAtOnce)
    for checkpoint in (1, 2):
        version = commit(committer, stage(uri, checkpoint, checkpoint)).table_version
        ids_there = DeltaTable(uri, version=version).to_pyarrow_table()["id"].to_pylist()
        assert sorted(ids_there) == [[1], [1, 2, 99]][checkpoint - 1]


def test_an_outcome_that_stays_unknown_is_said_to_be_and_can_be_asked_again(uri: str) -> None:
    request = stage(uri, 1, 1)
    with pytest.raises(OutcomeUnknown, match="the connection broke"):
        commit(faulty(uri, NeverAnswers), request)
    assert commit(committer(uri, restored=1), request).rows == 1
    assert ids(uri) == [1]


def test_a_commit_that_loses_every_race_asks_to_be_retried(uri: str) -> None:
    assert commit(faulty(uri, AlwaysLoses), stage(uri, 1, 1)).outcome is CommitOutcome.RETRY
    assert ids(uri) == []


# --- rewinds --------------------------------------------------------------------------------------


def test_a_refused_rewind_names_table_versions_and_choices(uri: str) -> None:
    mine = committer(uri)
    for n in (1, 2, 3):
        commit(mine, stage(uri, n, n))
    with pytest.raises(ConfigError) as caught:
        committer(uri, restored=1)
    text = str(caught.value)
    for part in (
        uri,
        "(version 3)",
        "up to checkpoint 3",
        "restored from checkpoint 1 ",
        "(version 1)",
        "allow_",
    ):
        assert part in text.replace("checkpoint 1:", "checkpoint 1 :")


def test_an_allowed_rewind_loses_nothing_and_goes_on_exactly_once(uri: str) -> None:
    mine = committer(uri)
    for n in (1, 2, 3):
        commit(mine, stage(uri, n, n))
    rewound = committer(uri, restored=1, on_rewind="allow_duplicates")
    second = stage(uri, 2, 2)
    assert commit(rewound, second).outcome is CommitOutcome.COMMITTED
    assert commit(rewound, second).outcome is ALREADY
    # a crash, restored from 2: the same branch, not another one
    restored = committer(uri, restored=2, on_rewind="allow_duplicates")
    assert commit(restored, second).outcome is ALREADY
    assert commit(restored, stage(uri, 3, 3)).outcome is CommitOutcome.COMMITTED
    # the branch has passed the old one, and is still the branch
    assert commit(committer(uri, restored=3), stage(uri, 4, 4)).outcome is CommitOutcome.COMMITTED
    assert ids(uri) == [1, 2, 2, 3, 3, 4]


def test_a_rewind_does_not_commit_again_what_its_checkpoint_had_pending(uri: str) -> None:
    first = stage(uri, 1, 1)
    mine = committer(uri)
    commit(mine, first)
    commit(mine, stage(uri, 2, 2))
    assert commit(committer(uri, restored=1, on_rewind="allow_duplicates"), first).outcome is ALREADY
    assert ids(uri) == [1, 2]


def test_an_allowed_rewind_is_remembered_before_its_first_commit(uri: str) -> None:
    """Ids are given out again after a rewind: that of a commit before it must not pass for one behind it."""
    mine = committer(uri)
    for n in (1, 2, 3):
        commit(mine, stage(uri, n, n))
    committer(uri, restored=1, on_rewind="allow_duplicates")  # then: nothing to commit for checkpoint 2,
    restored = committer(uri, restored=3, on_rewind="allow_duplicates")  # a crash before the commit of 3
    again = stage(uri, 3, 33)
    assert commit(restored, again).outcome is CommitOutcome.COMMITTED
    assert commit(restored, again).outcome is ALREADY
    assert ids(uri) == [1, 2, 3, 33]


def test_a_rewind_to_before_another_rewind_is_one_too(uri: str) -> None:
    mine = committer(uri)
    for n in (1, 2, 3):
        commit(mine, stage(uri, n, n))
    committer(uri, restored=2, on_rewind="allow_duplicates")
    with pytest.raises(ConfigError, match="restored from checkpoint 1:"):
        committer(uri, restored=1)
    older = committer(uri, restored=1, on_rewind="allow_duplicates")
    assert commit(older, stage(uri, 2, 22)).outcome is CommitOutcome.COMMITTED
    assert ids(uri) == [1, 2, 3, 22]


def test_a_committer_from_before_a_rewind_is_fenced_as_soon_as_that_begins(uri: str) -> None:
    zombie = committer(uri)
    commit(zombie, stage(uri, 1, 1))
    commit(zombie, stage(uri, 2, 2))
    committer(uri, restored=1, on_rewind="allow_duplicates")
    with pytest.raises(Fenced):
        commit(zombie, stage(uri, 3, 3))
    assert ids(uri) == [1, 2]


def test_a_committer_from_before_a_rewind_is_fenced(uri: str) -> None:
    zombie = committer(uri)
    commit(zombie, stage(uri, 1, 1))
    commit(zombie, stage(uri, 2, 2))
    commit(committer(uri, restored=1, on_rewind="allow_duplicates"), stage(uri, 2, 2))
    with pytest.raises(Fenced):
        commit(zombie, stage(uri, 3, 3))
    assert ids(uri) == [1, 2, 2]


# --- kills ----------------------------------------------------------------------------------------

CHILD = """
import sys
import importlib.util
spec = importlib.util.spec_from_file_location("delta_faults", sys.argv[1])
faults = importlib.util.module_from_spec(spec)
sys.modules["delta_faults"] = faults
spec.loader.exec_module(faults)
faults.child(*sys.argv[2:])
"""


def child(uri: str, handed_over: str) -> None:
    """Stages two rows, hands the committable over as a checkpoint would, and commits it."""
    request = stage(uri, 1, 1, 2)
    with open(handed_over, "wb") as file:
        file.write(msgspec.msgpack.encode(request.committables))
    commit(committer(uri), request)


@pytest.mark.parametrize(
    ("point", "visible"),
    [
        pytest.param("delta.before_append", False, id="before the commit"),
        pytest.param("delta.appended", True, id="after the commit"),
    ],
)
def test_a_kill_around_the_commit_leaves_each_row_once(
    uri: str, tmp_path: Path, point: str, visible: bool
) -> None:
    handed_over = tmp_path / "committables"
    assert _killed(point, [uri, str(handed_over)]) == -signal.SIGKILL
    assert ids(uri) == ([1, 2] if visible else [])
    committables = msgspec.msgpack.decode(handed_over.read_bytes(), type=tuple[bytes, ...])
    result = commit(committer(uri, restored=1), CommitRequest(CheckpointId(1), committables))
    assert (result.outcome is ALREADY) == visible
    assert ids(uri) == [1, 2]


def test_a_kill_while_staging_leaves_nothing_that_a_reader_sees(uri: str, tmp_path: Path) -> None:
    handed_over = tmp_path / "committables"
    assert _killed("delta.staged", [uri, str(handed_over)]) == -signal.SIGKILL
    assert not handed_over.exists()
    assert not DeltaTable.is_deltatable(uri)
    commit(committer(uri), stage(uri, 1, 1, 2))
    assert ids(uri) == [1, 2]


def _killed(point: str, arguments: Sequence[str]) -> int:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, __file__, *arguments],
        env={**os.environ, POINTS_VARIABLE: point},
        timeout=WAIT_S,
        check=False,
    )
    return done.returncode
