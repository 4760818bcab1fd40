"""The checkpoint coordinator: a table of behaviours, and any event in any order any number of times."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.unit.core.checkpoint.rig import INTERVAL, PAUSE, Rig, kinds
from tests.unit.core.cluster import Cluster, settings
from unistream.base.ids import CheckpointId, LeaderEpoch
from unistream.core import contract
from unistream.core.contract import RestorePoint
from unistream.model import messages as msg
from unistream.model.checkpoint_figures import SnapshotStatus
from unistream.model.execution_state import ExecutionState
from unistream.model.snapshot_kind import SnapshotKind


def test_the_phases_come_in_order() -> None:
    rig = Rig()
    assert kinds(rig.start()) == ["SetTimer", "SetTimer", "PrepareDirectory"]
    assert kinds(rig.ready(1)) == ["TriggerCheckpoint"] * 2, "only the two sources start barriers"
    assert kinds(rig.ack(1, 0, 1, 2, 3)) == []
    assert kinds(rig.ack(1, 4)) == ["CancelTimer", "WriteManifest"], "manifest first"
    assert kinds(rig.durable(1)) == ["CheckpointCompleted"] * 5, "notify later"


@pytest.mark.parametrize(
    ("given", "then"),
    [
        pytest.param(lambda r: r.fire(INTERVAL), [], id="only one checkpoint in flight"),
        pytest.param(lambda r: r.ack(1, 0) + r.ack(1, 0), [], id="a repeated ack does not complete it"),
        pytest.param(lambda r: r.ack(2), [], id="an ack of another checkpoint is ignored"),
        pytest.param(lambda r: r.durable(1), [], id="a manifest that was not asked for is ignored"),
        pytest.param(
            lambda r: r.fail_manifest(1), [], id="a manifest failure that was not asked for is ignored"
        ),
        pytest.param(lambda r: r.expire(7), [], id="the timeout of another checkpoint is ignored"),
        pytest.param(lambda r: r.ready(1), [], id="a repeated directory is ignored"),
        pytest.param(
            lambda r: r.ask(SnapshotKind.SAVEPOINT), [], id="a savepoint waits for the one in flight"
        ),
        pytest.param(
            lambda r: [*r.ack(1), *r.expire(1)],
            ["CancelTimer", "WriteManifest"],
            id="the timeout after the last ack is too late",
        ),
        pytest.param(
            lambda r: r.expire(1),
            ["CancelTimer", *["CheckpointAborted"] * 5, "DiscardSnapshot"],
            id="an expired one is aborted and discarded",
        ),
    ],
)
def test_a_triggered_checkpoint(given: Callable[[Rig], list[contract.Command]], then: list[str]) -> None:
    rig = Rig()
    rig.start()
    rig.ready(1)
    assert kinds(given(rig)) == then


def test_ids_never_repeat_also_after_an_abort_and_a_restart() -> None:
    rig = Rig({"execution.checkpointing.tolerable-failed-checkpoints": "9"})
    rig.start()
    rig.ready(1)
    rig.expire(1)
    rig.fire(INTERVAL)
    rig.suspend()
    rig.start()
    ids = [c.checkpoint_id for c in rig.all if isinstance(c, contract.PrepareDirectory)]
    assert ids == [1, 2, 3]


def test_an_ack_after_expiry_is_ignored() -> None:
    rig = Rig()
    rig.start()
    rig.ready(1)
    rig.expire(1)
    assert kinds(rig.ack(1)) == []


def test_a_directory_that_comes_after_the_abort_is_discarded() -> None:
    rig = Rig()
    rig.start()
    rig.expire(1)
    assert rig.ready(1) == [contract.DiscardSnapshot("chk-1")]
    assert rig.ready(1) == [], "once"


def test_a_snapshot_starts_only_when_every_split_has_arrived_and_holds_back_the_others() -> None:
    rig = Rig()
    source = next(iter(rig.executions)).attempt.vertex
    rig.sources.ready(rig.attempts[0].subtask)
    rig.find_splits(source, "s-0", "s-1")
    (assign,) = (c for c in rig.outbox.take() if isinstance(c, contract.Send))
    rig.start()
    assert kinds(rig.ready(1)) == [], "s-0 may be under way"
    rig.sources.ready(rig.attempts[1].subtask)
    assert rig.outbox.take() == [], "held back"
    rig.sources.delivered(assign.token or 0)
    triggers = rig.do(lambda c: c.splits_delivered())
    assert kinds(triggers) == ["TriggerCheckpoint"] * 2
    fates = []
    for trigger in triggers:
        token = trigger.token or 0  # type: ignore[union-attr]
        fates += rig.do(lambda c, token=token: c.trigger_settled(token, None))
    assert kinds(fates) == ["AssignSplits"], "s-1 follows behind the trigger"


def test_a_task_that_refuses_the_trigger_aborts_without_counting() -> None:
    rig = Rig()
    rig.start()
    (first, _) = rig.ready(1)[1:]
    rig.do(lambda c: c.trigger_settled(first.token or 0, "not running"))  # type: ignore[union-attr]
    assert rig.failures == []
    assert kinds(rig.fire(INTERVAL))[-1] == "PrepareDirectory"


@pytest.mark.parametrize("kind", [SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT])
@pytest.mark.parametrize("told_first", ["that the trigger found nobody", "that the task has finished"])
def test_a_task_that_finishes_before_its_trigger_comes_does_not_cost_the_snapshot(
    kind: SnapshotKind, told_first: str
) -> None:
    """Another one is taken without it, whichever is heard first."""
    rig = Rig()
    rig.start()
    rig.complete(1)
    rig.ask(kind)
    trigger = next(c for c in rig.ready(2) if isinstance(c, contract.Send))
    token = trigger.token or 0
    source = next(iter(rig.executions))

    def refused() -> list[contract.Command]:
        return rig.do(lambda c: c.trigger_settled(token, "it runs no more", ended=True))

    def finished() -> list[contract.Command]:
        rig.executions.move(source, ExecutionState.FINISHED, "test")
        rig.outbox.take()
        return rig.do(lambda c: c.task_finished(source))

    refused_first = told_first == "that the trigger found nobody"
    reported = [*refused(), *finished()] if refused_first else [*finished(), *refused()]
    assert "PrepareDirectory" in kinds(reported)
    assert not [c for c in rig.all if isinstance(c, contract.AnswerRequest)], "its asker still waits"
    triggered = [c.message for c in rig.ready(3) if isinstance(c, contract.Send)]
    assert source.attempt not in {m.attempt for m in triggered if isinstance(m, msg.TriggerCheckpoint)}
    rig.ack(3, 1, 2, 3, 4)
    rig.settle_triggers()
    rig.durable(3)
    [answer] = [c for c in rig.all if isinstance(c, contract.AnswerRequest)]
    assert answer.path == "chk-3"


@pytest.mark.parametrize("tolerable", [0, 1, 3])
def test_one_failure_more_than_tolerable_fails_the_job(tolerable: int) -> None:
    rig = Rig({"execution.checkpointing.tolerable-failed-checkpoints": str(tolerable)})
    rig.start()
    for n in range(1, tolerable + 2):
        assert rig.failures == []
        rig.ready(n)
        rig.decline(n)
        if not rig.failures:
            rig.fire(INTERVAL)
    assert len(rig.failures) == 1
    assert "tolerable-failed-checkpoints" in rig.failures[0].message


def test_a_task_that_is_not_ready_does_not_count() -> None:
    rig = Rig()
    rig.start()
    rig.ready(1)
    rig.decline(1, "CHECKPOINT_DECLINED_TASK_NOT_READY: still restoring")
    assert rig.failures == []


def test_the_first_checkpoint_waits_for_the_least_pause() -> None:
    rig = Rig({"execution.checkpointing.min-pause": "5 s"})
    assert kinds(rig.start()) == ["SetTimer"]
    assert kinds(rig.fire(PAUSE)) == ["SetTimer", "SetTimer", "PrepareDirectory"]


def test_a_checkpoint_waits_for_interval_and_pause() -> None:
    rig = Rig({"execution.checkpointing.min-pause": "5 s"})
    rig.start()
    rig.fire(PAUSE)
    rig.complete(1)
    assert kinds(rig.fire(INTERVAL)) == []
    assert kinds(rig.fire(PAUSE)) == ["SetTimer", "SetTimer", "PrepareDirectory"]


def test_a_savepoint_ignores_the_pause_is_not_announced_and_supersedes_nothing() -> None:
    rig = Rig({"execution.checkpointing.min-pause": "5 s"})
    rig.start()
    rig.fire(PAUSE)
    rig.complete(1)
    assert kinds(rig.ask(SnapshotKind.SAVEPOINT)) == ["SetTimer", "PrepareDirectory"]
    assert kinds(rig.complete(2)) == ["AnswerRequest", "SetTimer"], "the pause begins again"
    latest = rig.coordinator.completed.latest
    assert latest is not None
    assert latest.checkpoint_id == 1


@pytest.mark.parametrize(
    ("fail", "text", "fails_the_job"),
    [
        pytest.param(lambda r: r.expire(2), "waiting for source #0", False, id="it took too long"),
        pytest.param(
            lambda r: (r.ack(2), r.settle_triggers(), r.fail_manifest(2)),
            "oops",
            False,
            id="its manifest could not be written",
        ),
        pytest.param(
            lambda r: r.decline(2), "(source #0: disk full)", True, id="a task could not do its part"
        ),
        pytest.param(
            lambda r: r.decline(2, "CHECKPOINT_DECLINED_SUBSUMED"),
            "a newer barrier arrived",
            False,
            id="a task declined for a reason that is nobody's fault",
        ),
    ],
)
def test_a_failed_savepoint_is_the_askers_alone_unless_a_task_is_to_blame(
    fail: Callable[[Rig], object], text: str, fails_the_job: bool
) -> None:
    """CheckpointFailureManager: what fails at the master is no reason to restart, a task may be."""
    rig = Rig()
    rig.start()
    rig.complete(1)
    rig.ask(SnapshotKind.SAVEPOINT)
    rig.ready(2)
    fail(rig)
    assert bool(rig.failures) == fails_the_job
    [answer] = [c for c in rig.all if isinstance(c, contract.AnswerRequest)]
    assert text in (answer.error or "")


def test_what_a_task_could_not_store_of_a_savepoint_is_tolerated_as_of_a_checkpoint() -> None:
    rig = Rig({"execution.checkpointing.tolerable-failed-checkpoints": "1"})
    rig.start()
    rig.complete(1)
    for n, failures in ((2, 0), (3, 1)):
        rig.ask(SnapshotKind.SAVEPOINT, f"r{n}")
        rig.ready(n)
        rig.decline(n)
        assert len(rig.failures) == failures


@pytest.mark.parametrize(
    ("kind", "start"),
    [
        (SnapshotKind.SAVEPOINT, "savepoint 2 failed: "),
        (SnapshotKind.SUSPEND, "stop with savepoint 2 failed: "),
        (SnapshotKind.TERMINATE, "drain with savepoint 3 failed: "),
    ],
)
def test_what_failed_is_called_as_its_asker_calls_it(kind: SnapshotKind, start: str) -> None:
    rig = Rig()
    rig.start()
    rig.complete(1)
    rig.ask(kind)
    rig.ready(2)
    if kind is SnapshotKind.TERMINATE:
        rig.ready(3)
    rig.decline(2)
    [answer] = [c for c in rig.all if isinstance(c, contract.AnswerRequest)]
    assert (answer.error or "").startswith(start)


@pytest.mark.parametrize("retained", [1, 2, 3])
def test_superseded_checkpoints_go_only_when_the_newer_is_durable(retained: int) -> None:
    rig = Rig({"execution.checkpointing.num-retained": str(retained)})
    rig.start()
    for n in range(1, 6):
        gone = [c.directory for c in rig.complete(n) if isinstance(c, contract.DiscardSnapshot)]
        assert gone == ([f"chk-{n - retained}"] if n > retained else [])
        rig.fire(INTERVAL)


def test_an_unknown_outcome_is_asked_for_again_and_nothing_is_deleted() -> None:
    rig = Rig({"execution.checkpointing.tolerable-failed-checkpoints": "5"})
    rig.start()
    rig.ready(1)
    rig.ack(1)
    assert kinds(rig.fail_manifest(1, unknown=True)) == ["WriteManifest"]
    assert kinds(rig.fail_manifest(1, unknown=True)) == ["WriteManifest"]
    assert "DiscardSnapshot" not in kinds(rig.fail_manifest(1, unknown=True))
    assert kinds(rig.durable(1)) == [], "too late"


def test_a_failure_after_an_unknown_outcome_deletes_nothing_either() -> None:
    """It speaks of the second try only: the first may have written the manifest."""
    rig = Rig({"execution.checkpointing.tolerable-failed-checkpoints": "5"})
    rig.start()
    rig.ready(1)
    rig.ack(1)
    assert kinds(rig.fail_manifest(1, unknown=True)) == ["WriteManifest"]
    assert "DiscardSnapshot" not in kinds(rig.fail_manifest(1))


def test_a_fenced_leader_fails_the_job_for_good_and_deletes_nothing_any_more() -> None:
    rig = Rig()
    rig.start()
    rig.complete(1)
    rig.fire(INTERVAL)
    rig.ready(2)
    rig.ack(2)
    assert "DiscardSnapshot" not in kinds(rig.fail_manifest(2, fenced=True))
    assert [f.recoverable for f in rig.failures] == [False]


def test_a_task_that_ends_without_its_ack_makes_way_for_another_checkpoint() -> None:
    rig = Rig()
    rig.start()
    rig.ready(1)
    rig.ack(1, 1, 2, 3, 4)
    execution = next(iter(rig.executions))
    rig.executions.move(execution, ExecutionState.FINISHED, "test")
    commands = kinds(rig.do(lambda c: c.task_finished(execution)))
    assert commands[-1] == "PrepareDirectory"
    rig.settle_triggers()
    assert kinds(rig.ready(2)) == ["TriggerCheckpoint"], "of the other source"


def test_a_restored_job_goes_on_with_the_next_id_and_keeps_what_the_user_gave() -> None:
    rig = Rig()
    rig.start()
    rig.complete(1)
    latest = rig.coordinator.completed.latest
    assert latest is not None
    restored = Rig(restore=RestorePoint(directory="mine", manifest=latest.manifest, owned=False))
    restored.start()
    assert kinds(restored.complete(2)) == ["CheckpointCompleted"] * 5
    restored.fire(INTERVAL)
    assert restored.complete(3)[-1] == contract.DiscardSnapshot("chk-2")


def test_ids_start_behind_what_an_earlier_leader_may_have_written() -> None:
    cluster = Cluster(job_settings=settings(first_checkpoint_id=CheckpointId(8)))
    cluster.handle(contract.Started())
    cluster.run_to_end()
    assert min(m.checkpoint_id for m in cluster.stored.values()) == 8


def test_completion_carries_the_leaders_epoch() -> None:
    rig = Rig()
    rig.start()
    sent = [c.message for c in rig.complete(1) if isinstance(c, contract.Send)]
    assert {m.epoch for m in sent if isinstance(m, msg.CheckpointCompleted)} == {LeaderEpoch(1)}


ids = st.integers(1, 6)
places = st.integers(0, 4)


class CoordinatorRules(RuleBasedStateMachine):
    """Any event, any order, any number of times: late, repeated and invented ones too."""

    @initialize(concurrent=st.sampled_from("13"), unaligned=st.booleans())
    def start(self, concurrent: str, unaligned: bool) -> None:
        config = {"execution.checkpointing.tolerable-failed-checkpoints": "2"}
        if unaligned:
            config["execution.checkpointing.unaligned.enabled"] = "true"
        else:
            config["execution.checkpointing.max-concurrent-checkpoints"] = concurrent
        self.rig = Rig(config)
        self.acked: set[tuple[int, int]] = set()
        self.requests = 0

    @rule()
    def activate(self) -> None:
        if not self.rig.coordinator.is_active:
            self.rig.start()

    @rule(n=ids)
    def directory(self, n: int) -> None:
        self.rig.ready(n)

    @rule(n=ids, place=places)
    def ack(self, n: int, place: int) -> None:
        self.acked.add((n, place))
        self.rig.ack(n, place)

    @rule(n=ids)
    def all_ack(self, n: int) -> None:
        for place in range(5):
            self.ack(n, place)

    @rule(n=ids)
    def decline(self, n: int) -> None:
        self.rig.decline(n)

    @rule(n=ids, unknown=st.booleans(), durable=st.booleans())
    def manifest(self, n: int, unknown: bool, durable: bool) -> None:
        if durable:
            self.rig.durable(n)
        else:
            self.rig.fail_manifest(n, unknown=unknown)

    @rule()
    def fates(self) -> None:
        self.rig.settle_triggers()

    @rule(n=ids)
    def expire(self, n: int) -> None:
        self.rig.expire(n)

    @rule(timer=st.sampled_from([INTERVAL, PAUSE]))
    def timer(self, timer: contract.Timer) -> None:
        self.rig.fire(timer)

    @rule(kind=st.sampled_from(SnapshotKind))
    def ask(self, kind: SnapshotKind) -> None:
        self.requests += 1
        self.rig.ask(kind, f"r{self.requests}")

    @rule()
    def suspend(self) -> None:
        self.rig.suspend()

    @invariant()
    def manifest_only_after_every_ack(self) -> None:
        for command in self._of(contract.WriteManifest):
            n = command.manifest.checkpoint_id
            assert all((n, place) in self.acked for place in range(5))

    @invariant()
    def ids_strictly_grow(self) -> None:
        started = [command.checkpoint_id for command in self._of(contract.PrepareDirectory)]
        assert started == sorted(set(started))

    @invariant()
    def a_completed_checkpoint_goes_only_after_a_newer_one(self) -> None:
        completed: list[str] = []
        for command in self._of(object):
            if isinstance(command, contract.RecordCheckpoint):
                record = command.record
                if record.status is SnapshotStatus.COMPLETED and record.kind is SnapshotKind.CHECKPOINT:
                    completed.append(record.path or "")
            elif isinstance(command, contract.DiscardSnapshot):
                assert command.directory not in completed[-1:], "the newest one was discarded"

    @invariant()
    def a_terminal_savepoint_names_a_resumable_one_that_is_durable(self) -> None:
        records = [command.record for command in self._of(contract.RecordCheckpoint)]
        durable = {record.path for record in records if record.status is SnapshotStatus.COMPLETED}
        for command in self._of(contract.WriteManifest):
            if command.manifest.kind is SnapshotKind.TERMINATE:
                assert command.manifest.resumable in durable

    @invariant()
    def nothing_is_discarded_twice(self) -> None:
        discarded = [command.directory for command in self._of(contract.DiscardSnapshot)]
        assert len(discarded) == len(set(discarded))

    @invariant()
    def nobody_is_answered_twice(self) -> None:
        answered = [command.request for command in self._of(contract.AnswerRequest)]
        assert len(answered) == len(set(answered))

    def _of(self, kind: type) -> list:  # type: ignore[type-arg]
        return [c for c in self.rig.all if isinstance(c, kind)] if hasattr(self, "rig") else []


class TestAnyEventInAnyOrder(CoordinatorRules.TestCase):  # type: ignore[misc]  # hypothesis makes the class
    settings = hypothesis_settings(max_examples=500, stateful_step_count=50, deadline=None)
