"""When a simulated job is stuck in one failure."""

from __future__ import annotations

import pytest

from unistream.master.job_info import ExceptionInfo
from unistream.testing.simulate_failures import EQUAL_MAX, Failures, said

WHERE = "operator 'files committer' (uid 'out-committer'), subtask 1/2"


def failure(number: int, text: str, kind: str = "UserCodeError") -> ExceptionInfo:
    return ExceptionInfo(
        at_ms=number, kind=kind, message=text, attempt=f"job/v#0.{number}", task_name="v (1/1)"
    )


def looked(
    failures: list[ExceptionInfo], *, checkpoints: dict[int, int] | None = None, healed: bool = False
) -> tuple[int, str | None]:
    """How many were looked at, and what was said then. `checkpoints`: before which failure one completed."""
    seen, checkpoint = Failures(), 0
    for number, one in enumerate(failures):
        checkpoint = (checkpoints or {}).get(number, checkpoint)
        stuck = seen.look([one], checkpoint, healed=healed)
        if stuck is not None:
            return number + 1, stuck
    return len(failures), None


MANY = EQUAL_MAX + 5


@pytest.mark.parametrize(
    ("failures", "options", "count"),
    [
        pytest.param([failure(n, f"{WHERE}: no") for n in range(MANY)], {}, EQUAL_MAX, id="equal ones"),
        pytest.param(
            [failure(n, f"operator 'm' (uid 'm'), subtask {n}/99: tx{n:032x}") for n in range(MANY)],
            {},
            EQUAL_MAX,
            id="numbers, transactions and subtasks differ",
        ),
        pytest.param(
            [
                failure(n, f"{WHERE}, {'restoring its state' if n else 'working in the background'}: no")
                for n in range(MANY)
            ],
            {},
            EQUAL_MAX,
            id="what it was doing differs",
        ),
        pytest.param(
            [failure(n, f"{WHERE}: {'ab'[n % 2]}") for n in range(2 * EQUAL_MAX)],
            {},
            2 * EQUAL_MAX - 1,
            id="two by turns",
        ),
        pytest.param(
            [failure(n, f"{WHERE}: no") for n in range(MANY)],
            {"checkpoints": {10: 3}},
            MANY,
            id="a checkpoint completes between them",
        ),
        pytest.param(
            [failure(n, f"{WHERE}: no") for n in range(2 * MANY)],
            {"checkpoints": {10: 3}},
            EQUAL_MAX + 10,
            id="and then no other",
        ),
        pytest.param([failure(1, f"{WHERE}: no")] * MANY, {}, MANY, id="one that is seen again"),
        pytest.param(
            [failure(n, f"no answer (in {WHERE}, committing)", "Unreachable") for n in range(MANY)],
            {},
            MANY,
            id="no answer, while there are faults",
        ),
        pytest.param(
            [failure(n, f"no answer (in {WHERE}, committing)", "Unreachable") for n in range(MANY)],
            {"healed": True},
            EQUAL_MAX,
            id="no answer, without any fault",
        ),
        pytest.param(
            [failure(n, "tm-000002 is lost", "WorkerLost") for n in range(MANY)],
            {"healed": True},
            MANY,
            id="not in an operator",
        ),
    ],
)
def test_stuck(failures: list[ExceptionInfo], options: dict[str, object], count: int) -> None:
    seen, stuck = looked(failures, **options)  # type: ignore[arg-type]
    assert seen == count
    assert (stuck is None) is (count == len(failures))
    if stuck is not None:
        assert stuck.startswith(
            f"the job fails again and again: {EQUAL_MAX} times, with no checkpoint in between, "
        )
        assert stuck.endswith(said(failures[count - 1]))


def test_the_failure_that_came_most_often_is_named() -> None:
    failures = Failures()
    assert failures.most() == ""
    for number, text in enumerate(["a", "b", "b"]):
        failures.look([failure(number, f"{WHERE}: {text}")], number, healed=False)
    assert failures.most() == f"; most often, 2 times: {WHERE}: b"


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        pytest.param(
            failure(1, f"{WHERE}: ValueError: no\nmore"), f"{WHERE}: ValueError: no", id="user code"
        ),
        pytest.param(failure(1, "gone", "Unreachable"), "Unreachable: gone (in v (1/1))", id="of a task"),
        pytest.param(failure(1, f"x (in {WHERE})", "Fenced"), f"Fenced: x (in {WHERE})", id="of an operator"),
        pytest.param(
            ExceptionInfo(
                at_ms=1, kind="JobFailed", message="no restarts", concurrent=(failure(1, f"{WHERE}: no"),)
            ),
            f"{WHERE}: no",
            id="of a job that may not restart",
        ),
    ],
)
def test_a_failure_in_one_sentence(failure: ExceptionInfo, text: str) -> None:
    assert said(failure) == text
