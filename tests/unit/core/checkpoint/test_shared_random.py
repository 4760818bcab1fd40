"""Checkpoints that share files, several at once, reported late: what they name is there, in any order."""

from __future__ import annotations

import random

import pytest

from tests.unit.core.cluster import EVERY_2_S, Action, Cluster, job_graph, settings
from tests.unit.core.shared import shared_files
from unistream.core import contract
from unistream.model.file_ref import stored_for

STEPS = 250
RESTARTING = EVERY_2_S | {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "execution.checkpointing.tolerable-failed-checkpoints": "1000",
}


def actions(cluster: Cluster, draw: random.Random) -> list[Action]:
    """Snapshots begin as soon as they may; now and then a worker dies, or the time of one is up."""
    timers = [
        (f"fire {t}", lambda t=t: cluster.fire(t))
        for t in cluster.timers_of(contract.TimerKind.CHECKPOINT_INTERVAL)
    ]
    if draw.random() < 0.02:
        timers += [(f"lose {w}", lambda w=w: cluster.lose(w)) for w in cluster.mail]
        expire = cluster.timers_of(contract.TimerKind.CHECKPOINT_TIMEOUT)
        timers += [(f"expire {t}", lambda t=t: cluster.fire(t)) for t in expire]
        if timers:
            return timers
    return cluster.enabled() + timers or [
        (f"fire {t}", lambda t=t: cluster.fire(t)) for t in list(cluster.timers)
    ]


def settle_with_a_checkpoint(cluster: Cluster) -> None:
    """Faults are over, and one has completed since."""
    cluster.settle()
    known = len(cluster.stored)
    while len(cluster.stored) == known:
        cluster.fire(
            min(cluster.timers, key=lambda timer: (cluster.timers[timer], timer.kind.value, timer.id))
        )
        cluster.settle()


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_a_file_that_a_kept_checkpoint_names_is_there_and_no_other_in_the_end(at_once: int) -> None:
    completed = 0
    for seed in range(40):
        draw = random.Random(seed)
        config = RESTARTING | {"execution.checkpointing.max-concurrent-checkpoints": str(at_once)}
        cluster = Cluster(job_graph(bounded=False), settings(config))
        cluster.handle(contract.Started())
        for _ in range(STEPS):
            draw.choice(actions(cluster, draw))[1]()
            assert shared_files(*cluster.kept) <= cluster.shared.files, "a file that is named has gone"
        completed += len(cluster.stored)
        settle_with_a_checkpoint(cluster)
        latest = max(manifest.checkpoint_id for manifest in cluster.kept)
        older = {path for path in cluster.shared.files if (stored_for(path) or 0) < latest}
        assert older <= shared_files(*cluster.kept), "what was given up is left while the job runs"
        cluster.handle(contract.CancelRequested())
        cluster.run_to_end()
        assert cluster.shared.files == shared_files(*cluster.kept), "files that nobody names are left"
    assert completed > 150, "too few to say anything"
