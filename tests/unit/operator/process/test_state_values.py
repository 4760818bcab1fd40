"""What lists of operators and broadcast maps are given is what comes back, or it is refused at once; a
refusal says where."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from unistream.base.errors import UserCodeError
from unistream.model.snapshot import ListMode
from unistream.model.state import MapStateDescriptor, OperatorListDescriptor
from unistream.operator.process import KeyedProcessOperator
from unistream.operator.process.list_state import BroadcastMap, OperatorList
from unistream.testing.harness import OperatorHarness

POINT = pa.struct([("x", pa.float64()), ("n", pa.int64())])
NOON = datetime.datetime(2024, 1, 1, 12, 0, 0, 123456)  # noqa: DTZ001  a moment without a zone


@pytest.mark.parametrize("mode", ListMode)
@pytest.mark.parametrize(
    ("kind", "given", "form"),
    [
        pytest.param(POINT, {"n": 1}, {"x": None, "n": 1}, id="struct"),
        pytest.param(pa.map_(pa.string(), pa.int64()), {"a": 1}, [("a", 1)], id="map"),
        pytest.param(pa.float32(), 0.1, 0.10000000149011612, id="float32"),
        pytest.param(pa.timestamp("ns"), NOON, NOON, id="nanoseconds"),
        pytest.param(pa.int64(), None, None, id="null"),
    ],
)
def test_a_list_gives_elements_in_their_form(
    mode: ListMode, kind: pa.DataType, given: Any, form: Any
) -> None:
    declared = OperatorListDescriptor("s", kind, mode)
    made = OperatorList(declared)
    made.update([given])
    made.add(given)
    made.add_all([given])
    restored = OperatorList(declared, made.snapshot().items)
    assert [repr(made.get()), repr(restored.get())] == [repr((form,) * 3)] * 2


def test_a_list_refuses_what_does_not_fit_and_keeps_what_it_has() -> None:
    made = OperatorList(OperatorListDescriptor("s", POINT))
    made.add({"n": 1})
    bad = {"n": 1, "m": 2}
    for put in (made.add, lambda one: made.add_all([{}, one]), lambda one: made.update([{}, one])):
        with pytest.raises(UserCodeError, match=r"state 's' was given a value .* it has a field 'm'"):
            put(bad)
    assert made.get() == ({"x": None, "n": 1},)


def test_a_broadcast_map_has_keys_and_values_in_their_form() -> None:
    declared = MapStateDescriptor("rules", POINT, key_type=pa.float64())
    made = BroadcastMap(declared, [])
    made.writable = True
    for number, key in enumerate((-0.0, 0, 0.0)):
        made.put(key, {"n": number})
    made.put(float("nan"), {"n": 7})
    made.put(None, {"n": 8})
    for rules in (made, BroadcastMap(declared, made.snapshot().items)):
        assert [rules.get(key) for key in (0, -0.0, float("nan"), None)] == [
            {"x": None, "n": number} for number in (2, 2, 7, 8)
        ]
        assert (rules.contains(False), rules.contains(1), len(list(rules.items()))) == (True, False, 3)
    for ask in (made.get, made.contains, made.remove, lambda key: made.put(key, {})):
        with pytest.raises(UserCodeError, match=r"map state 'rules' was given a key .* 'x'"):
            ask("x")
    with pytest.raises(UserCodeError, match=r"state 'rules' was given a value .*field 'm'"):
        made.put(1, {"m": 1})
    made.remove(-0.0)
    assert not made.contains(0.0)


class Misfits(us.KeyedProcessFunction):
    """Puts a text among numbers, by a row or by a timer."""

    numbers = us.ListStateDescriptor("numbers", pa.int64())

    def process_element(self, row: dict[str, Any], context: us.ProcessContext, out: us.Collector) -> None:
        if row["now"]:
            context.state(self.numbers).add("x")
        context.register_event_time_timer(5)

    def on_timer(self, timestamp: int, context: us.ProcessContext, out: us.Collector) -> None:
        context.state(self.numbers).add("x")


def test_a_refusal_names_the_function_and_the_row_or_the_timer_with_its_key() -> None:
    reported = "raised UserCodeError: state 'numbers' was given a value .* int64: 'x'"
    with OperatorHarness(KeyedProcessOperator(Misfits(), ["k"])) as operator:
        operator.process({"k": ["ann"], "now": [False]})
        with pytest.raises(
            UserCodeError, match=rf"'Misfits', process_element {reported}.* at row 1 of the batch"
        ):
            operator.process({"k": ["ann", "bob"], "now": [False, True]})
        with pytest.raises(UserCodeError, match=rf"'Misfits', on_timer\(5\) of key \('ann',\) {reported}"):
            operator.watermark(5)
