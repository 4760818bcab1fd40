"""A master that stood still gives others the time in which it could not hear them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.eventually import eventually
from tests.unit.base.test_base_awake_clock import Jumping
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.test_master_stop_twice import running
from unistream.base.awake_clock import AwakeClock
from unistream.base.ids import TaskManagerId
from unistream.core.contract import SnapshotRequest
from unistream.model import messages as msg
from unistream.model.snapshot_kind import SnapshotKind

HOUR_MS = 3_600_000  # above heartbeat.timeout, execution.checkpointing.timeout and slot.request.timeout


def test_neither_a_worker_nor_a_checkpoint_is_given_up(make_cluster: Callable[..., Any]) -> None:
    workers, source = ScriptedWorkers(ends=False), Jumping()
    triggered, pings = [], []

    def hold(_worker: TaskManagerId, message: msg.ToTaskManager) -> msg.Answer | None:
        if isinstance(message, msg.Ping):
            pings.append(message)
        if not isinstance(message, msg.TriggerCheckpoint):
            return None
        triggered.append(message)
        return msg.Ack()

    workers.intercept = hold
    with AwakeClock(source) as clock:
        config = {"heartbeat.interval": "300 ms"}
        leader = make_cluster(workers=workers, clock=clock, config=config).dispatcher
        job = running(leader)
        savepoint = leader.snapshot(job, SnapshotRequest(kind=SnapshotKind.SAVEPOINT))
        eventually(lambda: bool(triggered), "a savepoint waits for its acknowledgements")
        source.jumped_ms = HOUR_MS
        before = len(pings)
        eventually(lambda: len(pings) >= before + 2, "the master looks at its workers again")
        found = leader.job(job)
        assert (found.state, found.restarts, found.exceptions) == ("RUNNING", 0, ())
        assert not savepoint.done()
        assert [worker.id for worker in leader.task_managers()] == workers.registered
