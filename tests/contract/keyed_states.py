"""Kinds of keyed state as contract tests declare, write and look at them: key by key, and in columns."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest

from tests.contract.state_bench import Bench, Keyed
from unistream.model.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateOptions,
    ValueStateDescriptor,
)

BACKENDS = ["hashmap", "rocksdb"]
SUM_AND_COUNT = pa.struct([("sum", pa.int64()), ("count", pa.int64())])
AB = [("a",), ("b",)]
ABC = [*AB, ("c",)]


class Mean:
    """An aggregate whose accumulator is changed in place."""

    def create_accumulator(self) -> Any:
        return {"sum": 0, "count": 0}

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator["sum"] += value
        accumulator["count"] += 1
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return accumulator["sum"] / accumulator["count"]

    def merge(self, one: Any, other: Any) -> Any:
        return {name: one[name] + other[name] for name in one}


def plus(one: Any, other: Any) -> Any:
    return one + other


# --- declarations ---------------------------------------------------------------------------------


def value(**options: Any) -> StateDescriptor:
    return ValueStateDescriptor("s", pa.int64(), options=StateOptions(**options))


def listed(**options: Any) -> StateDescriptor:
    return ListStateDescriptor("s", pa.int64(), options=StateOptions(**options))


def mapped(**options: Any) -> StateDescriptor:
    return MapStateDescriptor("s", pa.int64(), key_type=pa.string(), options=StateOptions(**options))


def summed(**options: Any) -> StateDescriptor:
    return ReducingStateDescriptor("s", pa.int64(), reduce=operator.add, options=StateOptions(**options))


def reducing(**options: Any) -> StateDescriptor:
    return ReducingStateDescriptor("s", pa.int64(), reduce=plus, options=StateOptions(**options))


def aggregating(**options: Any) -> StateDescriptor:
    return AggregatingStateDescriptor("s", SUM_AND_COUNT, aggregate=Mean(), options=StateOptions(**options))


# --- columns --------------------------------------------------------------------------------------


def got(column: Any, keys: Any) -> list[Any]:
    """What each key has."""
    found: list[Any] = column.get(keys).to_pylist()
    return found


def of_map(column: Any, keys: Any) -> list[dict[str, int]]:
    """The map of each key."""
    entries = column.entries(keys)
    found: list[dict[str, int]] = [{} for _ in keys]
    for row in entries.to_pylist():
        found[row["group"]][row["map_key"]] = row["value"]
    return found


def partial_means(numbers: list[int]) -> pa.Array:
    return pa.array([{"sum": number, "count": 1} for number in numbers], SUM_AND_COUNT)


def _add_numbers(column: Any, keys: Any, numbers: list[int]) -> None:
    column.add(keys, pa.array(numbers))


# --- kinds ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind:
    """How a kind of state is declared, written and looked at.

    Attributes:
        write: (handle, a number).
        look: (handle) -> what the current key has.
        put: (column, keys, a number for each key).
        find: (column, keys) -> what each key has.
        nothing: Before anything was written; `one`: after 5 was; `two`: after 7 was, too.
    """

    declare: Callable[..., StateDescriptor]
    write: Callable[[Any, int], None]
    look: Callable[[Any], Any]
    put: Callable[[Any, Any, list[int]], None]
    find: Callable[[Any, Any], list[Any]]
    nothing: Any
    one: Any
    two: Any

    def with_five(self, bench: Bench, **options: Any) -> tuple[Keyed, Any]:
        """A new backend and its handle, whose current key "a" has 5."""
        keyed = bench.make()
        state = keyed.state(self.declare(**options))
        keyed.at("a")
        self.write(state, 5)
        return keyed, state


VALUE = Kind(
    value,
    lambda s, n: s.update(n),
    lambda s: s.value(),
    lambda c, k, n: c.put(k, pa.array(n)),
    got,
    nothing=None,
    one=5,
    two=7,
)
LIST = Kind(
    listed,
    lambda s, n: s.add(n),
    lambda s: list(s.get()),
    _add_numbers,
    got,
    nothing=[],
    one=[5],
    two=[5, 7],
)
MAP = Kind(
    mapped,
    lambda s, n: s.put("x", n),
    lambda s: dict(s.items()),
    lambda c, k, n: c.put(k, pa.array(["x"] * len(n)), pa.array(n)),
    of_map,
    nothing={},
    one={"x": 5},
    two={"x": 7},
)
SUM = replace(LIST, declare=summed, look=lambda s: s.get(), nothing=None, one=5, two=12)
MEAN = replace(SUM, declare=aggregating, one=5.0, two=6.0)

KINDS = [
    pytest.param(VALUE, id="value"),
    pytest.param(LIST, id="list"),
    pytest.param(MAP, id="map"),
    pytest.param(SUM, id="known reduce"),
    pytest.param(replace(SUM, declare=reducing), id="reducing"),
    pytest.param(MEAN, id="aggregating"),
]
MERGED = replace(MEAN, put=lambda c, k, n: c.merge(k, partial_means(n)))

all_kinds = pytest.mark.parametrize("kind", KINDS)
all_kinds_in_columns = pytest.mark.parametrize(
    "kind", [*KINDS, pytest.param(MERGED, id="aggregating, merged")]
)
