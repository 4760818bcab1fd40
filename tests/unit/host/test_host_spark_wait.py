"""What is said of a worker for which Spark has no place."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from unistream.base.ids import TaskManagerId
from unistream.host.spark_status import SparkExecutor, SparkStage, host_of
from unistream.host.spark_wait import AGAIN_MS, FIRST_MS, PlaceWait, lacking, waiting
from unistream.testing.harness.operators import ManualClock

TWO = [SparkExecutor(id=str(n), host=f"node-{n}", cores=2, active=2) for n in (1, 2)]


@pytest.mark.parametrize(
    ("master", "executors", "is_local", "said"),
    [
        pytest.param("spark://m:7077", [], False, "has given this application no executor", id="none"),
        pytest.param(
            "spark://m:7077",
            TWO,
            False,
            "2 executors (node-1, node-2), with 4 cores and 4 tasks that run",
            id="full",
        ),
        pytest.param("local[2]", [], True, "local[2] runs 2 tasks at a time", id="a session of few threads"),
    ],
)
def test_what_spark_lacks(master: str, executors: list[SparkExecutor], is_local: bool, said: str) -> None:
    assert said in lacking(master, executors, is_local=is_local)


def test_a_master_that_has_forgotten_the_application_is_named() -> None:
    """In a session of the program, which is not started again here."""
    said = lacking("spark://m:7077", [], is_local=False, forgotten=True)
    assert "does not know this application any more: start its session again" in said


@pytest.mark.parametrize(
    ("given", "host"),
    [
        pytest.param("node-1:35711", "node-1", id="an executor that runs tasks"),
        pytest.param("node-1", "node-1", id="one whose block manager is not known yet"),
        pytest.param("[fd00::1]:35711", "[fd00::1]", id="IPv6"),
        pytest.param("[fd00::1]", "[fd00::1]", id="IPv6, not known yet"),
    ],
)
def test_an_executor_has_its_host_from_the_beginning(given: str, host: str) -> None:
    """Who avoids a host would start there: it is not known as that of an executor which has just come up."""
    assert host_of(given) == host


class Stages:
    """The store of a Spark, as the look at one job group sees it."""

    def __init__(self) -> None:
        self.found: list[SparkStage] = []

    def stages(self) -> list[SparkStage]:
        return self.found


def stage(*, running: int) -> SparkStage:
    return SparkStage(id=1, attempt=0, tasks=1, running=running, finished=0, failed=0, shuffle_bytes=0)


def test_it_is_said_after_a_while_and_again_until_the_worker_has_its_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, status = ManualClock(), Stages()
    context = SimpleNamespace(master="local[1]", _jsc=None)
    spark: Any = SimpleNamespace(context=context, placement=None)
    wait = PlaceWait(TaskManagerId("tm-1"), clock)
    lines, said = [], []
    with caplog.at_level(logging.WARNING, "unistream.host"):
        for later_ms, found in [
            (0, []),
            (FIRST_MS - 1, [stage(running=0)]),
            (1, [stage(running=0)]),
            (AGAIN_MS - 1, [stage(running=0)]),
            (1, [stage(running=0)]),
            (AGAIN_MS, [stage(running=1)]),
        ]:
            clock.now_ms += later_ms
            status.found = found
            wait.look(spark, cast("Any", status))
            lines.append(len(caplog.messages))
            said.append(bool(waiting([wait])))
    assert lines == [0, 0, 1, 1, 2, 2]
    assert said == [False, False, True, True, True, False]
    assert not wait.is_pending
    assert "event=worker_waits_for_spark task_manager=tm-1 waited_s=75" in caplog.messages[-1]
