"""One suite for every `port.state.KeyedStateBackend`: reducing state whose function is known for columns."""

from __future__ import annotations

import datetime
import math
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.keyed_states import AB, ABC
from tests.contract.state_bench import Bench
from unistream.base.errors import UserCodeError
from unistream.model.state import ReducingStateDescriptor

TIMES = [datetime.datetime(2026, 1, day, tzinfo=datetime.UTC) for day in (3, 1, 2)]
KNOWN = [
    pytest.param(operator.add, pa.int64(), [2**62, 2**62, -(2**62), -5], id="a sum that leaves its type"),
    pytest.param(operator.add, pa.int8(), [100, 20, -30, 1], id="a sum of small numbers"),
    pytest.param(operator.add, pa.uint64(), [2**63, 5, 2**62, 7], id="a sum without a sign"),
    pytest.param(operator.add, pa.float64(), [0.5, -0.25, 1e300, math.inf], id="a sum of floats"),
    pytest.param(operator.add, pa.float32(), [0.5, 0.25, 3.0, 1.5], id="a sum of short floats"),
    pytest.param(np.add, pa.int64(), [1, 2, 3, 4], id="numpy's sum"),
    pytest.param(min, pa.int32(), [5, 3, 9, -1], id="min"),
    pytest.param(max, pa.float64(), [1.0, 2.0, 3.0, math.nan], id="max of floats with NaN"),
    pytest.param(min, pa.timestamp("us", tz="UTC"), [*TIMES, TIMES[0]], id="min of times"),
    pytest.param(max, pa.date32(), [time.date() for time in (*TIMES, TIMES[0])], id="max of dates"),
    pytest.param(max, pa.bool_(), [False, False, True, False], id="max of bools"),
    pytest.param(operator.or_, pa.bool_(), [False, True, False, False], id="or"),
    pytest.param(operator.and_, pa.uint8(), [255, 7, 12, 255], id="and of bits"),
    pytest.param(max, pa.string(), ["b", "a", "c", ""], id="max of texts"),
]


@pytest.mark.parametrize(("function", "kind", "values"), KNOWN)
def test_a_known_function_comes_to_what_it_comes_to_pair_by_pair(
    bench: Bench, function: Callable[[Any, Any], Any], kind: pa.DataType, values: list[Any]
) -> None:
    declared = ReducingStateDescriptor("s", kind, reduce=function)
    keyed = bench.make()
    column = keyed.backend.column(declared)
    whose = np.array([0, 1, 0, 0])
    column.add(keyed.keys(ABC), pa.array(values, kind), whose)
    column.add(keyed.keys(ABC), pa.array([values[3]], kind), np.array([1]))
    expected = [reduce(function, [values[0], *values[2:]]), function(values[1], values[3]), None]
    found = column.get(keyed.keys(ABC))
    assert found.type == kind
    assert repr(found.to_pylist()) == repr(pa.array(expected, kind).to_pylist())
    assert len(keyed.rows("s")) == 2


def test_a_sum_that_does_not_fit_its_type_is_refused(bench: Bench) -> None:
    keyed = bench.make()
    column = keyed.backend.column(ReducingStateDescriptor("s", pa.int64(), reduce=operator.add))
    column.add(keyed.keys(AB), pa.array([2**63 - 1, 1]))
    with pytest.raises(UserCodeError, match=r"'s' was given a value .*not of its declared type int64"):
        column.add(keyed.keys(AB), pa.array([1]), np.array([0]))


numbers = st.one_of(st.none(), st.integers(-5, 5), st.integers(-(2**40), 2**40))
batches = st.lists(st.lists(st.tuples(st.integers(0, 2), numbers), max_size=6), max_size=4)


@given(batches=batches, function=st.sampled_from([operator.add, min, max, operator.or_, operator.and_]))
def test_known_functions_over_any_batches(
    batches: list[list[tuple[int, int | None]]],
    function: Callable[[Any, Any], Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    bench = Bench("hashmap", tmp_path_factory.getbasetemp())
    keyed = bench.make()
    column = keyed.backend.column(ReducingStateDescriptor("s", pa.int64(), reduce=function))
    expected: list[int | None] = [None] * 3
    for batch in batches:
        whose = np.array([place for place, _ in batch], np.int64)
        column.add(keyed.keys(ABC), pa.array([number for _, number in batch], pa.int64()), whose)
        for place, number in batch:
            if number is not None:
                old = expected[place]
                expected[place] = number if old is None else function(old, number)
        assert column.get(keyed.keys(ABC)).to_pylist() == expected
    bench.close()


def test_a_wider_type_takes_over_what_was_reduced(bench: Bench) -> None:
    old, new = (ReducingStateDescriptor("s", kind, reduce=operator.add) for kind in (pa.int32(), pa.int64()))
    keyed = bench.make()
    keyed.backend.column(old).add(keyed.keys(AB), pa.array([1, 2]))
    restored = bench.make(restore=keyed.tables())
    column = restored.backend.column(new)
    column.add(restored.keys(AB), pa.array([2**40, 1]))
    assert column.get(restored.keys(AB)).to_pylist() == [2**40 + 1, 3]
