"""What follows from a failure; the names of the first tests are those of Flink's behaviours."""

from __future__ import annotations

import pytest

from unistream.base.ids import EdgeId, PartitionId, SubtaskId, VertexId
from unistream.core.contract import RestartBackoff
from unistream.core.execution import FailureHandler
from unistream.core.execution.failover import RestartPipelinedRegion
from unistream.core.execution.restart_backoff import ExponentialDelay, FixedDelay, NoRestart
from unistream.core.graph import Link, Pattern, Topology, build_regions
from unistream.model.execution_state import ExecutionState
from unistream.model.messages import TaskFailure
from unistream.model.partition_type import PartitionType

A, B, C = (SubtaskId(VertexId(name), 0) for name in "abc")
RESULT = PartitionId(A, EdgeId("ab"))
BOOM = TaskFailure(kind="UserCodeError", message="division by zero")


class AllRun:
    """A view: everything runs, nothing is lost."""

    def state(self, subtask: SubtaskId) -> ExecutionState:
        return ExecutionState.RUNNING

    def is_available(self, partition: PartitionId) -> bool:
        return True


def handler(backoff: RestartBackoff, *, restarts_user_errors: bool = True) -> FailureHandler:
    """a -blocking-> b, and c by itself."""
    link = Link(
        id=EdgeId("ab"),
        source=A.vertex,
        target=B.vertex,
        pattern=Pattern.POINTWISE,
        partition=PartitionType.BLOCKING,
    )
    topology = Topology([(s.vertex, 1) for s in (A, B, C)], [link])
    strategy = RestartPipelinedRegion(build_regions(topology))
    return FailureHandler(
        strategy, backoff, topology.all_subtasks(), restarts_user_errors=restarts_user_errors
    )


def thrice() -> FixedDelay:
    return FixedDelay(attempts_max=3, delay_ms=500)


def test_normal_task_failure() -> None:
    handling = handler(thrice())
    decision = handling.handle(B, BOOM, 10, AllRun())
    assert decision.tasks == {B}
    assert decision.delay_ms == 500
    assert not decision.is_global
    assert decision.is_new_attempt
    assert decision.error is None
    assert handling.number_of_restarts == 1


def test_restart_suppressed_by_strategy() -> None:
    handling = handler(NoRestart())
    decision = handling.handle(A, BOOM, 0, AllRun())
    assert decision.error == "Recovery is suppressed by none; UserCodeError: division by zero"
    assert handling.number_of_restarts == 0
    assert decision.tasks == frozenset()


def test_an_error_of_a_function_may_be_final() -> None:
    handling = handler(thrice(), restarts_user_errors=False)
    decision = handling.handle(B, BOOM, 10, AllRun())
    assert decision.error is not None
    assert "not restart after an error of a function; UserCodeError: division by zero" in decision.error
    lost = TaskFailure(kind="TaskManagerLost", message="it is gone")
    assert handling.handle(B, lost, 10, AllRun()).error is None


def test_the_strategy_is_named_with_its_parameters() -> None:
    handling = handler(FixedDelay(attempts_max=1, delay_ms=2_000))
    assert handling.handle(A, BOOM, 0, AllRun()).error is None
    error = handling.handle(A, BOOM, 1, AllRun()).error
    assert error is not None
    assert "suppressed by fixed-delay (attempts 1, delay 2000 ms)" in error


def test_partition_not_found() -> None:
    """The partition that could not be read counts as lost for this decision only."""
    lost = TaskFailure(kind="PartitionNotFound", message="gone", lost_partition=RESULT)
    handling = handler(thrice())
    assert handling.handle(B, lost, 0, AllRun()).tasks == {A, B}
    assert handling.handle(B, BOOM, 1, AllRun()).tasks == {B}


def test_a_global_failure_restarts_everything() -> None:
    decision = handler(thrice()).handle(None, BOOM, 0, AllRun())
    assert decision.is_global
    assert decision.tasks == {A, B, C}


@pytest.mark.parametrize("failed", [A, None], ids=["of a task", "of the job"])
def test_an_unrecoverable_error_asks_no_strategy(failed: SubtaskId | None) -> None:
    backoff = FixedDelay(attempts_max=1, delay_ms=0)
    handling = handler(backoff)
    fatal = TaskFailure(kind="ConfigError", message="no such topic", recoverable=False)
    decision = handling.handle(failed, fatal, 0, AllRun())
    assert decision.error == "The failure is not recoverable; ConfigError: no such topic"
    assert decision.is_global is (failed is None)
    assert decision.is_new_attempt
    assert handling.number_of_restarts == 0
    assert handling.handle(A, BOOM, 1, AllRun()).error is None  # it did not use up the one restart


def test_failures_before_the_announced_restart_are_one_restart() -> None:
    backoff = ExponentialDelay(
        initial_ms=100,
        max_ms=1_000,
        multiplier=2.0,
        reset_ms=10_000,
        jitter=0.0,
        attempts_max=1,
        draw=lambda: 0.0,
    )
    handling = handler(backoff)
    first, second, third = (handling.handle(s, BOOM, at, AllRun()) for s, at in ((A, 0), (C, 40), (B, 100)))
    assert [d.is_new_attempt for d in (first, second, third)] == [True, False, False]
    assert [d.delay_ms for d in (first, second, third)] == [100, 60, 0]
    assert [set(d.tasks) for d in (first, second, third)] == [{A, B}, {C}, {B}]
    assert handling.number_of_restarts == 1
    assert handling.handle(A, BOOM, 101, AllRun()).error is not None
