"""What the master hears of an exception: its class, and whether a restart may help."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
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
from unistream.base.ids import EdgeId, OperatorUid, PartitionId, SubtaskId, VertexId
from unistream.model.chain import Chain, ChainNode
from unistream.model.elements import Batch
from unistream.operator.common import MapRows
from unistream.worker.task import task_failure
from unistream.worker.task.chain import OperatorChain, OperatorFailed
from unistream.worker.task.failures import shown_row


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


def parse(row: dict) -> int:
    return int(row["fare"])


def parse_named(row: dict) -> int:
    try:
        return parse(row)
    except ValueError as error:
        raise LookupError(f"no fare in {row}") from error


@pytest.mark.parametrize(
    ("function", "lines"),
    [
        (parse, ["in parse", "ValueError: invalid literal for int() with base 10: 'free'"]),
        (
            parse_named,
            [
                *("in parse_named", "in parse", "ValueError: invalid literal", "", "The above exception was"),
                *("", "in parse_named", "LookupError: no fare in {'fare': 'free'}"),
            ],
        ),
        (lambda row: pa.array([row["fare"]]).cast("int64"), ["in <lambda>", "ArrowInvalid: Failed to parse"]),
    ],
)
def test_the_users_part_is_the_row_and_his_own_frames(function: Any, lines: list[str]) -> None:
    node = ChainNode(uid=OperatorUid("fares"), name="fares", operator=None)
    chain = OperatorChain(Chain(nodes=(node,)), (MapRows(function),), {}, "subtask 1/1")
    rows = pa.RecordBatch.from_pydict({"fare": ["7", "free"]})
    with pytest.raises(OperatorFailed) as raised:
        chain.process_batch(Batch(rows, None), 0)
    failure = task_failure(raised.value)
    assert failure.message.endswith("at row 1 of the batch: {'fare': 'free'}")
    every = failure.user_traceback.splitlines()
    said = [line for line in every if not line.startswith(("Traceback", "    "))]
    assert [wanted in line for line, wanted in zip(said, lines, strict=True)] == [True] * len(lines), said
    assert "unistream/" not in failure.user_traceback


def test_an_error_of_ours_has_no_part_of_the_user() -> None:
    failure = task_failure(caused(Transient("busy"), ConnectionError("reset")))
    assert failure.user_traceback == ""


@pytest.mark.parametrize(
    ("rows", "position", "shown"),
    [
        (pa.table({"n": [1, 2]}), 1, ": {'n': 2}"),
        (pa.table({"n": [1, 2]}), None, ""),
        (pa.table({"n": [1, 2]}), 7, ""),
        (pa.table({"text": ["x" * 9_000]}), 0, ": {'text': '" + "x" * 290 + "…"),
        (pa.table({"at": pa.array([2**62], pa.timestamp("s"))}), 0, ""),
    ],
)
def test_a_row_is_shown_if_python_has_it(rows: pa.Table, position: int | None, shown: str) -> None:
    [batch] = rows.to_batches()
    assert shown_row(Batch(batch, None), position) == shown
