"""What the master hears of an exception: its class, and whether a restart may help."""

from __future__ import annotations

import pytest

import unistream as us
from unistream.base.errors import (
    ConfigError,
    CorruptSnapshot,
    Fenced,
    MissingCode,
    PartitionLost,
    Transient,
    UserCodeError,
)
from unistream.base.ids import EdgeId, PartitionId, SubtaskId, VertexId
from unistream.worker.task import task_failure
from unistream.worker.task.chain import OperatorFailed


def caused(error: Exception, *causes: Exception) -> Exception:
    """`error`, raised from the first of `causes`, which was raised from the next."""
    last = error
    for cause in causes:
        last.__cause__ = cause
        last = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "recoverable"),
    [
        (ValueError("odd"), "ValueError", True),
        (Transient("busy"), "Transient", True),
        (OperatorFailed("x"), "UserCodeError", True),
        (caused(OperatorFailed("x"), UserCodeError("y"), ValueError("odd")), "UserCodeError", True),
        (ConfigError("no such column"), "ConfigError", False),
        (Fenced("an older epoch"), "Fenced", False),
        (CorruptSnapshot("a file is missing"), "CorruptSnapshot", False),
        (caused(OperatorFailed("x"), UserCodeError("y"), ConfigError("no")), "UserCodeError", False),
        (MissingCode("no such module"), "UserCodeError", False),
        (caused(OperatorFailed("x"), ModuleNotFoundError("no such module")), "UserCodeError", False),
        (caused(OperatorFailed("x"), ImportError("no such name")), "UserCodeError", True),
        (caused(Transient("busy"), ConfigError("of somebody else")), "Transient", True),
        (us.SuppressRestarts("stop"), "SuppressRestarts", False),
        (caused(UserCodeError("y"), us.SuppressRestarts("stop")), "SuppressRestarts", False),
        (caused(us.SuppressRestarts("stop"), Transient("busy")), "SuppressRestarts", False),
        (caused(Transient("busy"), us.SuppressRestarts("stop")), "SuppressRestarts", False),
    ],
)  # fmt: skip
def test_whether_a_restart_may_help(error: Exception, kind: str, recoverable: bool) -> None:
    failure = task_failure(error)
    assert (failure.kind, failure.recoverable) == (kind, recoverable)


def test_a_module_that_a_function_misses_is_the_workers_to_have() -> None:
    error = caused(OperatorFailed("'f' raised No module named 'x'"), ModuleNotFoundError("x"))
    assert task_failure(error).message == "'f' raised No module named 'x'; install it on the workers"


def test_the_partition_that_is_lost_is_found_among_the_causes() -> None:
    lost = PartitionLost("gone", PartitionId(SubtaskId(VertexId("S"), 0), EdgeId("e")))
    assert task_failure(caused(RuntimeError("x"), lost)).lost_partition == lost.partition


def test_causes_in_a_circle_come_to_an_end() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert task_failure(first).recoverable
