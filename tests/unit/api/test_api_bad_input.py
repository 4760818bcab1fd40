"""Likely mistakes are one sentence that says what and where, before anything is started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from unistream.api.stream import DataStream
from unistream.base.errors import ConfigError

NO_TIME = us.WatermarkStrategy.no_watermarks()
INT = pa.int64()
USERS = pa.table({"user": pa.array([1, 2], INT)})
LIMITS = us.MapStateDescriptor("limits", INT, key_type=INT)
ANY: Any = None
FIVE: Any = 5


def users() -> DataStream:
    return us.Environment().from_source(us.StaticSource(USERS), NO_TIME, "users")


class Heirs(us.KeyedProcessFunction):
    one = us.ValueStateDescriptor("one", INT, options=us.StateOptions(renamed_from=("n",)))
    two = us.ValueStateDescriptor("two", INT, options=us.StateOptions(renamed_from=("n",)))
    process_element = print


class StillThere(us.KeyedBatchFunction):
    old = us.ValueStateDescriptor("n", INT)

    def __init__(self) -> None:
        self.new = us.ValueStateDescriptor("m", INT, options=us.StateOptions(renamed_from=("n",)))

    process_batch = print


class TwoTypes(us.KeyedProcessFunction):
    count = us.ValueStateDescriptor("n", INT)
    process_element = print


class OfABase(TwoTypes):
    text = us.ValueStateDescriptor("n", pa.string())


class Replaced(TwoTypes):
    """The attribute of the base is hidden: there is one state."""

    count = us.ValueStateDescriptor("n", pa.float64())

    def process_element(self, row: Any, context: Any, out: us.Collector) -> None:
        out.emit(row)


class Lists(us.ProcessFunction):
    one = us.OperatorListDescriptor("n", INT)
    two = us.OperatorListDescriptor("n", INT, us.ListMode.UNION)


class OtherLimits(us.BroadcastProcessFunction):
    limits = us.MapStateDescriptor("limits", pa.string(), key_type=INT)
    process_element = process_broadcast_element = print


class Same(us.BroadcastProcessFunction):
    limits = LIMITS

    def process_element(self, row: Any, context: Any, out: us.Collector) -> None:
        out.emit(row)

    def process_broadcast_element(self, row: Any, context: Any, out: us.Collector) -> None:
        """Takes none."""


def with_rules(function: us.BroadcastProcessFunction, *states: us.MapStateDescriptor) -> object:
    env = us.Environment()
    rows = env.from_source(us.StaticSource(USERS), NO_TIME, "users")
    rules = env.from_source(us.StaticSource(USERS), NO_TIME, "rules")
    return rows.key_by("user").connect(rules, *states).process(function)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        pytest.param(
            lambda: users().key_by("user").process(Heirs()),
            "function 'Heirs': states 'one' and 'two' are both renamed from 'n'",
            id="two states with one former name",
        ),
        pytest.param(
            lambda: users().key_by("user").process_batch(StillThere()),
            "function 'StillThere': state 'm' is renamed from 'n', which is still declared",
            id="a former name that is still declared",
        ),
        pytest.param(
            lambda: users().key_by("user").process(OfABase()),
            "function 'OfABase': state 'n' is declared twice, as value state of int64 and as value state of",
            id="one name, two types",
        ),
        pytest.param(
            lambda: users().process(Lists()),
            "function 'Lists': state 'n' is declared twice, as split list of int64 and as union list",
            id="lists without keys",
        ),
        pytest.param(
            lambda: with_rules(OtherLimits(), LIMITS),
            "function 'OtherLimits': state 'limits' is declared twice, as map state of int64 to int64 and",
            id="a broadcast map and an attribute",
        ),
        pytest.param(
            lambda: with_rules(Same(), LIMITS, OtherLimits.limits),
            "state 'limits' is declared twice",
            id="two broadcast maps",
        ),
        pytest.param(
            lambda: users().uid(FIVE), "operator 'users': a uid is text, not 5", id="a uid that is a number"
        ),
        pytest.param(
            lambda: users().sink_to(us.BlackholeSink()).uid(ANY), "a uid is text, not None", id="no uid"
        ),
        pytest.param(
            lambda: us.Environment({"parallelism.default": ANY}),
            "parallelism.default: a value is text, a number, a boolean or a timedelta, not None",
            id="an option without a value",
        ),
        pytest.param(
            lambda: us.Environment({"parallelism.default": 2.5}),
            "parallelism.default: '2.5' is not a whole number",
            id="a number of another kind",
        ),
        pytest.param(
            lambda: us.Environment({5: "x"}),  # type: ignore[dict-item]
            "configuration key 5 is not a string",
            id="a key that is a number",
        ),
        pytest.param(
            lambda: us.Environment(FIVE), "a mapping of keys to values, not 5", id="no configuration"
        ),
        pytest.param(
            lambda: us.Environment().execute_async(savepoint=FIVE),
            "savepoint is 5; it must be the path",
            id="a savepoint that is a number",
        ),
        pytest.param(
            lambda: us.read_savepoint(ANY), "a savepoint must be text or a Path, not None", id="read None"
        ),
        pytest.param(
            lambda: us.SavepointWriter().write(FIVE), "must be text or a Path, not 5", id="write to a number"
        ),
        pytest.param(
            lambda: us.finalize_savepoint(ANY), "must be text or a Path, not None", id="finalize None"
        ),
    ],
)  # fmt: skip
def test_one_sentence(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make()
    assert text in str(refused.value)
    assert "\n" not in str(refused.value)


def test_numbers_and_booleans_stand_for_their_text() -> None:
    env = us.Environment({"parallelism.default": 3, "pipeline.operator-chaining.enabled": False})
    assert env.config.to_dict() == {"parallelism.default": "3", "pipeline.operator-chaining.enabled": "false"}


def test_what_is_no_contradiction() -> None:
    """A subclass may replace a state of its base; the same descriptor may be an attribute and broadcast."""
    assert users().key_by("user").process(Replaced()) is not None
    assert with_rules(Same(), LIMITS) is not None
