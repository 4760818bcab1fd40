"""When splits are listed again, and what becomes of those that were not there when the job began."""

from __future__ import annotations

import pytest

from tests.unit.core.cluster import EVERY_2_S, Cluster, job_graph, pipelines, settings
from unistream.core import contract
from unistream.core.checkpoint import SplitAssigner
from unistream.core.checkpoint.split_discovery import RETRY_MS, TRANSITIONS, DiscoveryState, SplitDiscoveries
from unistream.core.contract import CommandOutbox, RestorePoint
from unistream.model import messages as msg
from unistream.model.graph import SourceInfo
from unistream.model.splits import KnownSplits

MINUTE = 60_000
FIXED = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100",
    "restart-strategy.fixed-delay.delay": "1 s",
}
STRICT = {"execution.checkpointing.tolerable-failed-checkpoints": "0"}
FIRST = ("s-0", "s-1", "s-2")
GROWN = (*FIRST, "s-3", "s-4")
SILENT = msg.TaskFailure(kind="Unreachable", message="the broker did not answer", recoverable=True)
GONE = msg.TaskFailure(kind="ConfigError", message="the topic is gone", recoverable=False)


def running(
    *, bounded: bool = False, interval_ms: int = MINUTE, config: dict[str, str] | None = None
) -> Cluster:
    graph = job_graph(bounded=bounded, interval_ms=interval_ms)
    cluster = Cluster(graph, settings(EVERY_2_S | FIXED | (config or {})))
    cluster.handle(contract.Started())
    cluster.settle()
    return cluster


def asked(cluster: Cluster) -> list[contract.DiscoverSplits]:
    return [c for c in cluster.commands if isinstance(c, contract.DiscoverSplits)]


def assigned(cluster: Cluster) -> list[str]:
    return sorted(split.id for m in cluster.sent(msg.AssignSplits) for split in m.splits)


def open_request(cluster: Cluster) -> contract.DiscoverSplits:
    return next(job for job in cluster.jobs if isinstance(job, contract.DiscoverSplits))


def fail_discovery(cluster: Cluster, failure: msg.TaskFailure) -> None:
    request = open_request(cluster)
    cluster.jobs.remove(request)
    cluster.handle(contract.DiscoveryFailed(vertex=request.vertex, failure=failure, number=request.number))


def fail_everything(cluster: Cluster) -> None:
    """A failure that is no task's."""
    if not any(isinstance(job, contract.PrepareDirectory) for job in cluster.jobs):
        cluster.fire(contract.TimerKind.CHECKPOINT_INTERVAL)
    request = next(job for job in cluster.jobs if isinstance(job, contract.PrepareDirectory))
    cluster.jobs.remove(request)
    cluster.handle(contract.DirectoryFailed(checkpoint_id=request.checkpoint_id, reason="no room"))
    assert cluster.state == "RESTARTING"


def restart(cluster: Cluster) -> None:
    cluster.settle()
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    cluster.settle()


def complete_checkpoint(cluster: Cluster) -> None:
    before = len(cluster.stored)
    cluster.fire(contract.TimerKind.CHECKPOINT_INTERVAL)
    cluster.settle()
    assert len(cluster.stored) == before + 1


# --- while the job runs -------------------------------------------------------------------------------


def test_new_splits_are_found_by_interval_and_given_out() -> None:
    cluster = running()
    assert [request.known for request in asked(cluster)] == [None]
    assert cluster.timers[contract.Timer(contract.TimerKind.SPLIT_DISCOVERY, 0)] == MINUTE
    cluster.splits = GROWN
    cluster.fire(contract.TimerKind.SPLIT_DISCOVERY)
    cluster.settle()
    assert asked(cluster)[-1].known == KnownSplits(ids=frozenset(FIRST))
    assert assigned(cluster) == sorted(GROWN)
    assert contract.Timer(contract.TimerKind.SPLIT_DISCOVERY, 0) in cluster.timers, "and so on"


@pytest.mark.parametrize("given", [{"interval_ms": 0}, {"interval_ms": -1}, {"bounded": True}])
def test_without_an_interval_and_for_bounded_sources_nothing_is_listed_again(given: dict) -> None:
    cluster = running(**given)
    assert not cluster.timers_of(contract.TimerKind.SPLIT_DISCOVERY)
    assert len(asked(cluster)) == 1


def test_a_system_that_does_not_answer_later_fails_nothing_and_is_asked_again_soon() -> None:
    cluster = running()
    cluster.fire(contract.TimerKind.SPLIT_DISCOVERY)
    fail_discovery(cluster, SILENT)
    assert cluster.state == "RUNNING"
    assert cluster.machine.view().restarts == 0
    assert cluster.timers[contract.Timer(contract.TimerKind.SPLIT_DISCOVERY, 0)] == RETRY_MS
    cluster.splits = GROWN
    cluster.fire(contract.TimerKind.SPLIT_DISCOVERY)
    cluster.settle()
    assert assigned(cluster) == sorted(GROWN)


def test_what_no_repetition_can_mend_fails_the_job() -> None:
    cluster = running()
    cluster.fire(contract.TimerKind.SPLIT_DISCOVERY)
    fail_discovery(cluster, GONE)
    cluster.settle()
    assert cluster.ended == contract.JobEnded(state="FAILED", failure=GONE)


def test_the_first_discovery_has_to_succeed() -> None:
    cluster = Cluster(job_graph(bounded=False, interval_ms=MINUTE), settings(EVERY_2_S | FIXED))
    cluster.handle(contract.Started())
    fail_discovery(cluster, SILENT)
    assert cluster.state == "RESTARTING"


def test_a_stop_ends_the_discoveries() -> None:
    cluster = running()
    cluster.handle(contract.CancelRequested())
    cluster.settle()
    assert cluster.ended is not None
    assert not cluster.timers_of(contract.TimerKind.SPLIT_DISCOVERY)


# --- checkpoints --------------------------------------------------------------------------------------


def test_a_split_that_is_found_while_a_checkpoint_is_triggered_is_held_back_and_lost_by_nobody() -> None:
    cluster = running()
    cluster.splits = GROWN
    earlier = len(cluster.sent(msg.TriggerCheckpoint))
    cluster.fire(contract.TimerKind.CHECKPOINT_INTERVAL)
    while len(cluster.sent(msg.TriggerCheckpoint)) == earlier:
        cluster.enabled()[0][1]()
    cluster.fire(contract.TimerKind.SPLIT_DISCOVERY)
    cluster.io(open_request(cluster))
    assert assigned(cluster) == sorted(FIRST), "held back until every task was triggered"
    cluster.settle()  # `check_splits` looks at each manifest
    assert assigned(cluster) == sorted(GROWN)
    complete_checkpoint(cluster)


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("checkpointed", [True, False])
def test_after_a_failure_new_splits_are_read_on_or_given_out_again(
    checkpointed: bool, everything: bool
) -> None:
    cluster = running(config=STRICT)
    complete_checkpoint(cluster)
    cluster.splits = GROWN
    cluster.fire(contract.TimerKind.SPLIT_DISCOVERY)
    cluster.settle()
    if checkpointed:
        complete_checkpoint(cluster)
    if everything:
        fail_everything(cluster)
    else:
        cluster.fail(cluster.task("source", 0))
    restart(cluster)
    requests = asked(cluster)
    assert len(requests) == 3
    from_state = frozenset(GROWN if checkpointed else FIRST)
    assert requests[-1].known == KnownSplits(ids=from_state if everything else frozenset(GROWN))
    complete_checkpoint(cluster)
    again = assigned(cluster)[len(GROWN) :]
    assert len(again) == (0 if checkpointed else 2), "those of the checkpoint are in the readers' state"


def test_without_a_checkpoint_each_split_keeps_the_position_that_it_was_first_found_at() -> None:
    graph = job_graph(bounded=False, interval_ms=MINUTE)
    cluster = Cluster(graph, settings(EVERY_2_S | FIXED | STRICT))
    cluster.handle(contract.Started())
    cluster.io(open_request(cluster))
    while cluster.state != "RUNNING":
        cluster.enabled()[0][1]()
    cluster.splits = GROWN
    cluster.fire(contract.TimerKind.SPLIT_DISCOVERY)
    cluster.io(open_request(cluster))
    assert not cluster.stored
    fail_everything(cluster)
    restart(cluster)
    assert asked(cluster)[-1].known == KnownSplits(ids=frozenset(GROWN)), "it is no first start"


def test_an_answer_from_before_a_restart_does_not_count() -> None:
    """It may be one of a first start, whose positions are not those of a split that has come since."""
    cluster = Cluster(job_graph(bounded=False, interval_ms=MINUTE), settings(EVERY_2_S | FIXED | STRICT))
    cluster.handle(contract.Started())
    late = open_request(cluster)
    cluster.jobs.remove(late)
    while cluster.state != "RUNNING":
        cluster.enabled()[0][1]()
    fail_everything(cluster)
    restart(cluster)
    cluster.handle(
        contract.SplitsDiscovered(
            vertex=late.vertex, splits=(msg.Split(id="s-9", data=b"first"),), number=late.number
        )
    )
    cluster.handle(contract.DiscoveryFailed(vertex=late.vertex, failure=GONE, number=late.number))
    cluster.settle()
    assert assigned(cluster) == sorted(FIRST)
    assert cluster.state == "RUNNING"


def test_a_resumed_job_goes_on_when_the_system_does_not_answer_the_first_question() -> None:
    """Its readers know what to read; that they reach nothing is theirs to say."""
    first = running(interval_ms=0)
    complete_checkpoint(first)
    directory, manifest = list(first.stored.items())[-1]
    cluster = Cluster(
        job_graph(bounded=False, interval_ms=0),
        settings(EVERY_2_S | FIXED),
        RestorePoint(directory=directory, manifest=manifest, owned=False),
    )
    cluster.splits = GROWN
    cluster.handle(contract.Started())
    assert open_request(cluster).known == KnownSplits(ids=frozenset(FIRST))
    fail_discovery(cluster, SILENT)
    cluster.settle()
    assert cluster.state == "RUNNING"
    cluster.fire(contract.TimerKind.SPLIT_DISCOVERY)
    cluster.settle()
    assert assigned(cluster) == ["s-3", "s-4"]
    assert not cluster.timers_of(contract.TimerKind.SPLIT_DISCOVERY), "once for each start"


def test_each_source_has_a_timer_of_its_own() -> None:
    cluster = Cluster(pipelines(interval_ms=MINUTE), settings(EVERY_2_S | FIXED))
    cluster.handle(contract.Started())
    cluster.settle()
    assert {timer.id for timer in cluster.timers_of(contract.TimerKind.SPLIT_DISCOVERY)} == {0, 1}
    cluster.fire(contract.Timer(contract.TimerKind.SPLIT_DISCOVERY, 1))
    assert cluster.graph.vertex(open_request(cluster).vertex).name == "source1"


# --- the state in a checkpoint ------------------------------------------------------------------------


def info() -> SourceInfo:
    return SourceInfo(connector="kafka", options={}, bounded=False, pull=False)


def test_the_origin_is_in_the_state_and_stays_what_it_was() -> None:
    assigner = SplitAssigner(info(), 1)
    assert assigner.found is None
    assigner.discovered([], "topic-id-1")
    assigner.discovered([msg.Split(id="t-0", data=b"")], "topic-id-2")
    restored = SplitAssigner.restore(info(), 1, assigner.snapshot(1))
    assert restored.found == KnownSplits(ids=frozenset({"t-0"}), origin="topic-id-1")


def test_origins_of_several_things_are_added_and_each_stays_what_it_was() -> None:
    assigner = SplitAssigner(info(), 1)
    assigner.discovered([msg.Split(id="t-0", data=b"")], origins={"t": "id-1", "u": ""})
    assigner.discovered([], origins={"t": "id-2", "u": "id-3", "v": "id-4"})
    restored = SplitAssigner.restore(info(), 1, assigner.snapshot(1))
    origins = {"t": "id-1", "u": "id-3", "v": "id-4"}
    assert restored.found == KnownSplits(ids=frozenset({"t-0"}), origins=origins)


def test_a_state_from_before_there_was_an_origin_is_read_and_learns_it() -> None:
    """As it was written by then: everything in it was there at the first start, and nothing else was."""
    state = (
        b"\x84\xa6format\x01\xa5known\x91\xa3t-0\xaaunassigned\x90\xaadiscovered\xc3"  # as written by then
    )
    assigner = SplitAssigner.restore(info(), 1, state)
    assert assigner.found == KnownSplits(ids=frozenset({"t-0"}), origin="")
    assigner.discovered([], "topic-id")
    assert assigner.found == KnownSplits(ids=frozenset({"t-0"}), origin="topic-id")


def test_a_state_from_before_the_first_discovery_makes_it_the_first() -> None:
    assert SplitAssigner.restore(info(), 1, SplitAssigner(info(), 1).snapshot(1)).found is None


def test_transitions() -> None:
    assert set(TRANSITIONS) == set(DiscoveryState)
    discoveries = SplitDiscoveries({}, CommandOutbox())
    assert discoveries.due(0) is None


# --- discoveries that continue at a position ----------------------------------------------------------


def growing(*, pull: bool) -> SourceInfo:
    return SourceInfo(connector="table", options={}, bounded=False, pull=pull)


def found_from(first: int, stop: int) -> list[msg.Split]:
    return [msg.Split(id=f"{n}:file", data=b"") for n in range(first, stop)]


@pytest.mark.parametrize("pull", [True, False])
def test_ids_of_splits_that_readers_have_for_good_are_forgotten(pull: bool) -> None:
    assigner = SplitAssigner(growing(pull=pull), 1)
    assigner.discovered(found_from(0, 3), "table-1", "3")
    assigner.ready(0)
    assigner.request(0)
    taken = {split.id for a in assigner.take() for split in a.splits}
    assert taken
    assigner.snapshot(1)
    assert assigner.known == ("0:file", "1:file", "2:file"), "the checkpoint may not complete"
    assigner.completed(1)
    assert set(assigner.known) == {"0:file", "1:file", "2:file"} - taken
    restored = SplitAssigner.restore(growing(pull=pull), 1, assigner.snapshot(2))
    assert restored.found == KnownSplits(ids=frozenset(assigner.known), origin="table-1", position="3")


def test_a_split_that_comes_back_keeps_its_place_before_those_found_later() -> None:
    assigner = SplitAssigner(growing(pull=True), 1)
    assigner.discovered(found_from(0, 2), "table-1", "2")
    assigner.request(0)
    assert [split.id for a in assigner.take() for split in a.splits] == ["0:file"]
    assigner.snapshot(1)
    assigner.completed(1)  # 0 is with its reader for good
    assigner.request(0)
    assert [split.id for a in assigner.take() for split in a.splits] == ["1:file"]
    assigner.discovered(found_from(2, 12), "table-1", "12")
    assigner.reader_reset(0)
    assert [split.id for split in assigner.unassigned] == [f"{n}:file" for n in range(1, 12)]


def test_without_a_snapshot_the_first_discovery_is_where_a_restart_continues() -> None:
    """What was found later is found again, so that it need not be remembered."""
    cluster = Cluster(job_graph(bounded=False, interval_ms=MINUTE), settings(EVERY_2_S | FIXED | STRICT))
    cluster.handle(contract.Started())
    for position, names in (("5", ("s-0", "s-1")), ("6", ("s-2",))):
        request = open_request(cluster)
        cluster.jobs.remove(request)
        splits = tuple(msg.Split(id=name, data=b"") for name in names)
        cluster.handle(
            contract.SplitsDiscovered(
                vertex=request.vertex, splits=splits, number=request.number, origin="t", position=position
            )
        )
        while cluster.state != "RUNNING":
            cluster.enabled()[0][1]()
        cluster.fire(contract.TimerKind.SPLIT_DISCOVERY)
    assert asked(cluster)[-1].known == KnownSplits(
        ids=frozenset({"s-0", "s-1", "s-2"}), origin="t", position="6"
    )
    fail_everything(cluster)
    restart(cluster)
    again = next(r for r in asked(cluster) if r.number > 3)
    assert again.known == KnownSplits(ids=frozenset({"s-0", "s-1"}), origin="t", position="5")
