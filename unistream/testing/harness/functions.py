"""Drives one user function as its task does: Flink's ProcessFunctionTestHarnesses.

>>> import unistream as us
>>> class Twice(us.ProcessFunction):
...     def process_element(self, row, context, out):
...         out.emit({"n": row["n"] * 2})
>>> with us.testing.ProcessFunctionHarness(Twice()) as harness:
...     harness.process({"n": [1, 2]})
...     harness.rows()
[{'n': 2}, {'n': 4}]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypedDict, TypeVar, Unpack

import pyarrow as pa

from unistream.api.stream import as_schema
from unistream.base.errors import ConfigError
from unistream.model.snapshot import OperatorState
from unistream.model.state import MapStateDescriptor
from unistream.operator.process import (
    BROADCAST_INPUT,
    BroadcastProcessFunction,
    BroadcastProcessOperator,
    KeyedBatchFunction,
    KeyedBatchOperator,
    KeyedProcessFunction,
    KeyedProcessOperator,
    ProcessFunction,
    ProcessOperator,
)
from unistream.testing.harness.operators import OperatorHarness, Rows

Returns: TypeAlias = pa.Schema | Mapping[str, pa.DataType]
"""Columns that the function emits; None: inferred from the first rows, as `process` of a stream does."""


F = TypeVar("F")


class HarnessOptions(TypedDict, total=False):
    """The subtask and its restored state, see `OperatorHarness`."""

    state: OperatorState | None
    index: int
    parallelism: int
    max_parallelism: int


class ProcessFunctionHarness(OperatorHarness):
    """One subtask of a `ProcessFunction`."""

    def __init__(
        self, function: ProcessFunction, *, returns: Returns | None = None, **options: Unpack[HarnessOptions]
    ) -> None:
        super().__init__(ProcessOperator(_instance(function), returns=as_schema(returns)), **options)


class KeyedProcessFunctionHarness(OperatorHarness):
    """One subtask of a `KeyedProcessFunction`.

    Args:
        keys: Columns that are the key, as in `key_by`.
    """

    def __init__(
        self,
        function: KeyedProcessFunction,
        keys: str | Sequence[str],
        *,
        returns: Returns | None = None,
        **options: Unpack[HarnessOptions],
    ) -> None:
        super().__init__(
            KeyedProcessOperator(_instance(function), _names(keys), returns=as_schema(returns)), **options
        )


class KeyedBatchFunctionHarness(OperatorHarness):
    """One subtask of a `KeyedBatchFunction`.

    Args:
        keys: Columns that are the key, as in `key_by`.
    """

    def __init__(
        self,
        function: KeyedBatchFunction,
        keys: str | Sequence[str],
        *,
        returns: Returns | None = None,
        **options: Unpack[HarnessOptions],
    ) -> None:
        super().__init__(
            KeyedBatchOperator(_instance(function), _names(keys), returns=as_schema(returns)), **options
        )


class BroadcastProcessFunctionHarness(OperatorHarness):
    """One subtask of a `BroadcastProcessFunction`: rows by `process`, rules by `process_broadcast`.

    Args:
        keys: Columns that are the key of the rows, as in `key_by`.
        states: Descriptors of the broadcast state, as in `connect`.
    """

    def __init__(
        self,
        function: BroadcastProcessFunction,
        keys: str | Sequence[str],
        *states: MapStateDescriptor,
        returns: Returns | None = None,
        **options: Unpack[HarnessOptions],
    ) -> None:
        operator = BroadcastProcessOperator(function, _names(keys), states, returns=as_schema(returns))
        super().__init__(operator, **options)

    def process_broadcast(self, rows: Rows, timestamps: Sequence[int] | None = None) -> None:
        """One batch of the broadcast input."""
        self.process(rows, timestamps, BROADCAST_INPUT)


def _instance(function: F) -> F:
    if isinstance(function, type):
        raise ConfigError(f"a harness takes an object: {function.__name__}(), not the class itself")
    return function


def _names(keys: str | Sequence[str]) -> list[str]:
    return [keys] if isinstance(keys, str) else list(keys)
