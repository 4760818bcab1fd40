"""What the sinks of a job have committed, and what waits: never 0 for what nobody knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.eventually import WAIT_S, eventually
from tests.unit.master.served_cluster import Api
from unistream.base.ids import CheckpointId, JobId, LeaderEpoch, LineageId, OperatorUid
from unistream.model import messages as msg
from unistream.model.job_info import JobInfo, SinkInfo
from unistream.operator.sink import Due
from unistream.port.metadata import CommitRecord
from unistream.rest.job_commits import StagedOutput, sinks_of, staged_outputs
from unistream.savepoint.pending import PendingCommits

LAKE = OperatorUid("lake")


def due(number: int, *payloads: bytes) -> Due:
    return Due(checkpoint_id=CheckpointId(number), payloads=payloads)


def committed(number: int, sink: str = "lake") -> CommitRecord:
    return CommitRecord(
        job=JobId("a" * 32), sink_uid=sink, checkpoint_id=CheckpointId(number), at_ms=number, rows=number
    )


def staged(number: int, committables: int, size: int, since_ms: int | None) -> StagedOutput:
    return StagedOutput(
        checkpoint_id=CheckpointId(number), committables=committables, size=size, since_ms=since_ms
    )


@pytest.mark.parametrize(
    ("newest", "waits"),
    [
        pytest.param(None, (staged(4, 1, 1, None), staged(5, 2, 3, 50)), id="nothing is committed yet"),
        pytest.param(4, (staged(5, 2, 3, 50),), id="the one before is"),
        pytest.param(5, (), id="all is"),
        pytest.param(9, (), id="a later one is"),
    ],
)
def test_what_a_sink_has_committed_does_not_wait(newest: int | None, waits: tuple[StagedOutput, ...]) -> None:
    found = PendingCommits(
        uid=OperatorUid("lake-committer"),
        sink_uid=LAKE,
        connector="",
        due=(due(4, b"a"), due(5, b"b", b"cd")),
    )
    sinks = {} if newest is None else {"lake": SinkInfo(checkpoint_id=CheckpointId(newest))}
    assert staged_outputs([found], sinks, {CheckpointId(5): 50}) == {"lake": waits}


@pytest.mark.parametrize("known", [True, False])
def test_every_sink_is_there_that_anything_is_known_of(known: bool) -> None:
    info = JobInfo(
        job=JobId("a" * 32),
        name="n",
        lineage=LineageId("l"),
        state="RUNNING",
        target="mini",
        submitted_ms=1,
        sinks={"counted": SinkInfo(rows=3)},
        writes={OperatorUid("silent"): ("file:///lake",), OperatorUid("hook"): ("https://hook",)},
        plain_sinks=(OperatorUid("hook"),),
    )
    waits = {"waits": (staged(5, 1, 1, 1),)} if known else None
    found = {one.uid: one for one in sinks_of(info, [committed(7), committed(6)], waits)}
    assert [one.uid for one in found.values() if one.plain] == ["hook"]
    assert list(found) == sorted({"counted", "silent", "lake", "hook", *(waits or ())})
    assert (found["silent"].writes, found["silent"].info) == (("file:///lake",), None)
    assert (found["lake"].newest, found["lake"].info) == (committed(7), None)
    assert found["silent"].staged == (() if known else None)


def test_commits_over_http(api: Api, submission: Callable[..., Any], checkpointed: dict[str, str]) -> None:
    job = api.cluster.dispatcher.submit(submission())
    assert api.cluster.dispatcher.wait_for(job, lambda info: info.all_tasks_run, WAIT_S)
    before = api.get(f"/v1/unistream/jobs/{job}/commits")
    assert (before["checkpoint_id"], before["sinks"], before["commits"]) == (None, [], [])
    assert before["why_unknown"] is None
    store, epoch = api.cluster.store(), LeaderEpoch(1)
    for number in (1, 2, 3):
        store.record_commit(
            CommitRecord(
                job=job, sink_uid="<b>lake", checkpoint_id=CheckpointId(number), at_ms=number, rows=number
            ),
            epoch,
        )
    store.close()
    after = api.get(f"/unistream/jobs/{job}/commits?limit=2")
    assert [one["checkpoint_id"] for one in after["commits"]] == [3, 2]
    assert [(one["uid"], one["newest"]["rows"], one["info"]) for one in after["sinks"]] == [
        ("<b>lake", 3, None)
    ]
    assert api.http.get(f"/unistream/jobs/{job}/commits?limit=0").status_code == 400
    assert api.http.get(f"/unistream/jobs/{'0' * 32}/commits").status_code == 404
    assert api.cluster.workers.messages(msg.TriggerCheckpoint) == []


def test_the_newest_snapshot_says_what_is_staged(
    api: Api, submission: Callable[..., Any], checkpointed: dict[str, str]
) -> None:
    job = api.cluster.dispatcher.submit(submission(config=checkpointed))
    api.cluster.workers.await_message(msg.CheckpointCompleted, 4)
    found: dict[str, Any] = {}

    def is_read() -> bool:
        """One that is replaced while it is read is not: the next is taken 20 ms later."""
        found.update(api.get(f"/unistream/jobs/{job}/commits"))
        return found["checkpoint_id"] is not None

    eventually(is_read, "a snapshot is read")
    assert found["checkpoint_id"] > 0
    assert found["taken_ms"] <= found["now_ms"]
    assert found["why_unknown"] is None
