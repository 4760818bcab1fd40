"""A task that waits for its final checkpoint, or has had it, when another one fails."""

from __future__ import annotations

import pytest

from tests.unit.core.cluster import EVERY_2_S, Cluster, settings
from unistream.core import contract
from unistream.model import messages as msg

FIXED = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1",
    "restart-strategy.fixed-delay.delay": "1 s",
}
COUNT_ENDS = "end of data count"


@pytest.mark.parametrize(
    ("until", "checkpoints", "finished"),
    [
        pytest.param("end of data source", 0, False, id="it waits for its final checkpoint: it runs again"),
        pytest.param(COUNT_ENDS, 0, False, id="no checkpoint has it as finished yet: it runs again"),
        pytest.param(COUNT_ENDS, 1, True, id="the last checkpoint has it as finished: so it comes back"),
    ],
)
def test_a_finished_task_comes_back_as_the_last_checkpoint_has_it(
    until: str, checkpoints: int, finished: bool
) -> None:
    cluster = Cluster(None, settings(EVERY_2_S | FIXED))
    cluster.handle(contract.Started())
    cluster.settle_without(until)
    for _ in range(checkpoints):
        cluster.fire(contract.Timer(contract.TimerKind.CHECKPOINT_INTERVAL))
        cluster.settle_without(until)
    running = {task.deployment.vertex.name for task in cluster.tasks.values()}
    assert running == {"count", "sink"} | ({"source"} if until != COUNT_ENDS else set())
    latest = max(manifest.checkpoint_id for manifest in cluster.stored.values())
    cluster.settle_without("ack")
    assert all(task.end_of_data for task in cluster.tasks.values())
    before = len(cluster.sent(msg.DeployTask))
    cluster.fail(cluster.task("sink", 0))
    cluster.settle()
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    cluster.settle_without(COUNT_ENDS)
    again = [m.deployment for m in cluster.sent(msg.DeployTask)[before:]]  # type: ignore[union-attr]
    assert {(d.vertex.name, d.restore.checkpoint_id) for d in again if d.restore is not None} == {
        (name, latest) for name in ("source", "count", "sink")
    }
    assert {d.restore.finished for d in again if d.restore and d.vertex.name == "source"} == {finished}
    assert {d.restore.finished for d in again if d.restore and d.vertex.name != "source"} == {False}
    cluster.run_to_end()
    assert cluster.ended == contract.JobEnded(state="FINISHED")
