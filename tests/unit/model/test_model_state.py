"""What a user declares of state: what is refused at once, with which words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError
from unistream.model.snapshot import ListMode
from unistream.model.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorListDescriptor,
    StateDescriptor,
    StateOptions,
    StateTtl,
    ValueStateDescriptor,
    check_declarations,
)

INT = pa.int64()
Declared = StateDescriptor | OperatorListDescriptor


def value(name: str, *former: str, of: pa.DataType | None = None, ttl: str | None = None) -> Declared:
    options = StateOptions(renamed_from=former, ttl=None if ttl is None else StateTtl(ttl))
    return ValueStateDescriptor(name, of or pa.int64(), options=options)


def keyed_map(name: str, keys: pa.DataType) -> Declared:
    return MapStateDescriptor(name, pa.int64(), key_type=keys)


@pytest.mark.parametrize(
    "states",
    [
        pytest.param([], id="none"),
        pytest.param([value("a"), value("b", of=pa.string())], id="two of different names"),
        pytest.param([value("a"), value("a")], id="one that is met twice"),
        pytest.param([value("a", "x"), value("b", "y", "z")], id="each with former names of its own"),
        pytest.param([value("a", "a")], id="one that was never called otherwise"),
        pytest.param([value("a", "x", "x")], id="a former name that is named twice"),
        pytest.param([OperatorListDescriptor("a", pa.int64())] * 2, id="a list of an operator, twice"),
    ],
)
def test_what_can_be_declared(states: list[Declared]) -> None:
    check_declarations("op", states)


@pytest.mark.parametrize(
    ("states", "text"),
    [
        pytest.param(
            [value("a", "n"), value("b", "n")],
            "op: states 'a' and 'b' are both renamed from 'n'",
            id="two states with one former name",
        ),
        pytest.param(
            [value("a", "n"), value("n")],
            "op: state 'a' is renamed from 'n', which is still declared",
            id="a former name that is still declared",
        ),
        pytest.param(
            [value("n"), value("a", "m", "n")],
            "op: state 'a' is renamed from 'n', which is still declared",
            id="the other way round",
        ),
        pytest.param(
            [value("a", "b"), value("b", "a")],
            "op: state 'a' is renamed from 'b', which is still declared",
            id="names that are exchanged",
        ),
        pytest.param(
            [value("n"), value("n", of=pa.string())],
            "op: state 'n' is declared twice, as value state of int64 and as value state of string",
            id="one name, two types",
        ),
        pytest.param(
            [value("n"), ListStateDescriptor("n", pa.int64())],
            "as value state of int64 and as list state of int64",
            id="one name, two kinds",
        ),
        pytest.param(
            [keyed_map("n", pa.int64()), keyed_map("n", pa.string())],
            "as map state of int64 to int64 and as map state of string to int64",
            id="one name, maps with other keys",
        ),
        pytest.param(
            [value("n"), value("n", ttl="1 h")], "with StateOptions(ttl=StateTtl(", id="one name, one life"
        ),
        pytest.param(
            [OperatorListDescriptor("n", INT), OperatorListDescriptor("n", INT, ListMode.UNION)],
            "as split list of int64 and as union list of int64",
            id="one name, dealt out in two ways",
        ),
    ],
)  # fmt: skip
def test_what_contradicts_itself(states: list[Declared], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_declarations("op", states)
    assert text in str(refused.value)
    assert "\n" not in str(refused.value)


ANY: Any = None


@pytest.mark.parametrize(
    ("make", "text"),
    [
        pytest.param(
            lambda: ValueStateDescriptor(5, pa.int64()),  # type: ignore[arg-type]
            "state name 5 is not text",
            id="a name that is a number",
        ),
        pytest.param(
            lambda: OperatorListDescriptor(None, pa.int64()),  # type: ignore[arg-type]
            "state name None is not text",
            id="no name",
        ),
        pytest.param(
            lambda: ValueStateDescriptor("n", int),
            "state 'n': its type must be an Arrow type",
            id="a Python type",
        ),
        pytest.param(
            lambda: StateTtl(ANY), "time_to_live is None; it must be text such as '1 h'", id="no time to live"
        ),
        pytest.param(lambda: StateTtl(True), "time_to_live is True", id="a time to live that is no number"),
        pytest.param(lambda: StateTtl(0), "time_to_live is 0; it must be at least 1 ms", id="no life at all"),
        pytest.param(
            lambda: StateOptions(ttl="1 h"),  # type: ignore[arg-type]
            "ttl is '1 h'; it must be a time to live, such as StateTtl('1 h')",
            id="a duration in place of a time to live",
        ),
        pytest.param(
            lambda: StateOptions(renamed_from="old"),  # type: ignore[arg-type]
            "renamed_from is 'old'; it must be a tuple of names, such as ('old',)",
            id="a former name that is no tuple",
        ),
        pytest.param(
            lambda: StateOptions(renamed_from=(1,)),  # type: ignore[arg-type]
            "renamed_from is (1,)",
            id="a former name that is a number",
        ),
    ],
)
def test_what_is_no_declaration(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make()
    assert text in str(refused.value)
