"""Cases of the shape of those next to this file, that are not among them: they are read and compared, too."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.conformance.files import Found, cases_of
from tests.support.conformance.runner import Outcome, run_cases

HERE = Path(__file__).parent
SINKS = json.loads((HERE / "two_phase_commit.json").read_text())["observedTraces"]


def played(section: str, *entries: Any) -> Outcome:
    return run_cases(Found(HERE, section, case) for case in cases_of(section, list(entries)))


def started(names: str) -> list[str]:
    opened = [
        call
        for name in reversed(names)
        for call in (f"{name} initializeState(restored=false)", f"{name} open")
    ]
    first = "processElement2(first)" if names == "E" else "processElement(first)"
    return [*opened, *(f"{name} {first}" for name in names), *checkpointed(names, 1)]


def checkpointed(names: str, checkpoint: int) -> list[str]:
    return [
        *(f"{name} prepareSnapshotPreBarrier({checkpoint})" for name in names),
        *(f"{name} snapshotState({checkpoint})" for name in reversed(names)),
        *(f"{name} notifyCheckpointComplete({checkpoint})" for name in reversed(names)),
    ]


def closed(names: str) -> list[str]:
    return [f"{name} close" for name in reversed(names)]


def drained(names: str) -> list[str]:
    ends = [call for name in names for call in (f"{name} endInput", f"{name} finish")]
    return [*(f"{name} processWatermark(MAX)" for name in names), *ends]


CHAINS = {"T1": "A", "T2": "BC", "T3": "D", "T4": "E"}


def trace(command: str, result: str, after: dict[str, list[str]]) -> dict[str, Any]:
    start = {task: started(names) for task, names in CHAINS.items()}
    return {
        "scenario": command,
        "jobResult": result,
        "segments": [
            {"segment": "fromStart", "perTask": start},
            {"segment": f"after: {command}", "perTask": after},
        ],
    }


def drain(*heard: str) -> dict[str, Any]:
    """E hears of the ends of its inputs in this order."""
    after = {task: drained(names) for task, names in CHAINS.items()}
    after["T4"] = [*(f"E {call}" for call in heard), "E finish"]
    ended = {task: [*after[task], *checkpointed(n, 2), *closed(n)] for task, n in CHAINS.items()}
    return trace("stopWithSavepoint(drain=true)", "job FINISHED", ended)


W1, W2, E1, E2 = "processWatermark1(MAX)", "processWatermark2(MAX)", "endInput(1)", "endInput(2)"
BOTH = "combinedWatermark(MAX)"
STOPPED = {task: [*checkpointed(names, 2), *closed(names)] for task, names in CHAINS.items()}
CANCELED = {task: closed(names) for task, names in CHAINS.items()}


@pytest.mark.parametrize(
    "recorded",
    [
        pytest.param(drain(W1, E1, W2, BOTH, E2), id="drained, the first input ends first"),
        pytest.param(drain(W2, E2, W1, BOTH, E1), id="drained, the second input ends first"),
        pytest.param(drain(W1, W2, BOTH, E1, E2), id="drained, both at once, the first before"),
        pytest.param(drain(W2, W1, BOTH, E2, E1), id="drained, both at once, the second before"),
        pytest.param(trace("stopWithSavepoint(drain=false)", "job FINISHED", STOPPED), id="stopped"),
        pytest.param(trace("cancel", "job CANCELED", CANCELED), id="cancelled"),
    ],
)
def test_a_trace_of_the_recorded_job(recorded: dict[str, Any]) -> None:
    outcome = played("observedTraces", recorded)
    assert (outcome.passed, outcome.failed, outcome.skipped) == (2, [], [])


@pytest.mark.parametrize(
    "recorded",
    [
        pytest.param(drain(W1, E1, W2, E2, BOTH), id="the end of time behind the last end of input"),
        pytest.param(drain(E1, W1, W2, BOTH, E2), id="an input that ends before its end of time"),
        pytest.param(drain(W1, E1, BOTH, W2, E2), id="the end of time before that of the second input"),
    ],
)
def test_an_order_that_cannot_be_is_a_failure(recorded: dict[str, Any]) -> None:
    assert played("observedTraces", recorded).failed


def scaled_in(committed: str) -> dict[str, Any]:
    calls = [
        "committer createCommitter(restoredCheckpoint=5)",
        f"committer commit[{committed}]",
        "writer restoreWriter[ws0,ws1,ws2]",
        "writer write(first)",
        "writer flush(endOfInput=true)",
        "writer prepareCommit->[txn0.0.0]",
        "writer snapshotWriter(6)",
        "committer commit[txn0.0.0]",
        "committer closeCommitter",
        "writer closeWriter",
    ]
    return {
        "id": "in",
        "scenario": "restore e with sink p=1 (scale in)",
        "jobResult": "FINISHED",
        "segments": [{"segment": "fromStart", "perSubtask": {"subtask0": calls}}],
    }


@pytest.mark.parametrize(
    ("committed", "fails"),
    [
        pytest.param("txn2.0.1,txn0.0.1,txn1.0.1", False, id="in any order"),
        pytest.param("txn0.0.1,txn1.0.1,txn2.0.7", True, id="what nobody has prepared"),
        pytest.param("txn0.0.1,txn1.0.1", True, id="not all"),
    ],
)
def test_a_sink_is_restored_from_the_trace_that_its_scenario_names(committed: str, fails: bool) -> None:
    outcome = played("observedTraces", *SINKS, scaled_in(committed))
    assert [found.case.name for found, _ in outcome.failed] == (
        ["restore e with sink p=1 (scale in)"] if fails else []
    )


def wires() -> Iterator[Any]:
    yield pytest.param(
        "source, stop-with-savepoint without drain",
        ["data*", "EndOfData(NO_DRAIN)", "CheckpointBarrier(n)", "EndOfPartition"],
        id="stopped",
    )
    yield pytest.param(
        "one-input task, stop-with-savepoint --drain",
        [
            "data*",
            "Watermark(MAX)",
            "records of finish()+",
            "EndOfData(DRAIN)",
            "CheckpointBarrier(n)",
            "EndOfPartition",
        ],
        id="drained",
    )
    yield pytest.param("source closed on restore", ["Watermark(MAX)", "EndOfData(DRAIN)"], id="finished")


@pytest.mark.parametrize(("case", "output"), list(wires()))
def test_what_another_task_writes(case: str, output: list[str]) -> None:
    outcome = played("wireEvents", {"case": case, "output": output})
    assert (outcome.passed, outcome.failed, outcome.skipped) == (1, [], [])
    for missing in range(len(output)):
        if output[missing].endswith("*"):
            continue
        shorter = copy.copy(output)
        del shorter[missing]
        assert played("wireEvents", {"case": case, "output": shorter}).failed
