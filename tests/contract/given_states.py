"""Values as contract tests give them to states of every kind, and the restores that they must survive."""

from __future__ import annotations

import datetime
import decimal
import enum
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from tests.contract.keyed_states import BACKENDS
from tests.contract.state_bench import Bench, Keyed
from unistream.base.ids import CheckpointId, OperatorUid
from unistream.model.snapshot import KeyedShare, OperatorRestore, OperatorSnapshot
from unistream.model.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateOptions,
    StateTtl,
    ValueStateDescriptor,
)
from unistream.state.common import read_operator_state, write_task_snapshot
from unistream.testing.harness import MemoryFiles

UID = OperatorUid("op")
D = decimal.Decimal
BERLIN, PLUS_TWO = ZoneInfo("Europe/Berlin"), datetime.timezone(datetime.timedelta(hours=2))
NOON = datetime.datetime(2024, 1, 1, 12, 0, 0, 123456)  # noqa: DTZ001  a moment without a zone
MILLIS = NOON.replace(microsecond=123000)
UTC_NOON = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)
TWICE = datetime.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN)  # once more an hour later
NAN = float("nan")
POINT = pa.struct([("x", pa.float64()), ("n", pa.int64())])
STRICT = pa.struct([pa.field("x", pa.int64(), nullable=False)])


class Answer(enum.IntEnum):
    YES = 1


class Word(enum.StrEnum):
    HELLO = "hello"


class Last:
    """An aggregate of the last value."""

    def create_accumulator(self) -> Any:
        return None

    def add(self, value: Any, accumulator: Any) -> Any:
        return value

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, one: Any, other: Any) -> Any:
        return other


def last(one: Any, other: Any) -> Any:
    return other


# --- restores -------------------------------------------------------------------------------------


class Lives:
    """A backend of one type, and those that are restored from it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._folder = folder
        self._benches = {name: Bench(name, folder / name) for name in BACKENDS}
        self.kind = kind
        self._made: list[Path] = []
        for name in BACKENDS:
            (folder / name).mkdir()

    def first(self) -> Keyed:
        keyed = self._benches[self.kind].make()
        keyed.at("a")
        return keyed

    def restored(self, keyed: Keyed) -> Iterator[tuple[str, Keyed]]:
        """From a checkpoint in its own format, and from a canonical savepoint in each type of backend."""
        for how, native, kind in [
            ("its checkpoint", True, self.kind),
            *((f"a canonical savepoint in {kind}", False, kind) for kind in BACKENDS),
        ]:
            files = MemoryFiles("chk-1", {})
            snapshot = OperatorSnapshot(state=keyed.backend.snapshot(CheckpointId(1)))
            task, _ = write_task_snapshot({UID: snapshot}, files, finished=False, native=native)
            handle = task.operators[UID]
            shares = tuple(KeyedShare(handle=one, start=0, stop=len(one.key_groups)) for one in handle.keyed)
            restore = OperatorRestore(keyed=shares, native=handle.native)
            state = read_operator_state(restore, CheckpointId(1), files, self._folder)
            again = self._benches[kind].make(restore=state.state)
            again.at("a")
            yield how, again

    def close(self) -> None:
        for bench in self._benches.values():
            bench.close()


# --- values ---------------------------------------------------------------------------------------

TTL = StateOptions(ttl=StateTtl("1 h"))


def declared(kind: pa.DataType) -> dict[str, StateDescriptor]:
    """States whose values are of this type, and one that has it inside."""
    inside = pa.struct([("one", kind), ("list", pa.list_(kind)), ("map", pa.map_(pa.string(), kind))])
    states: list[StateDescriptor] = [
        ValueStateDescriptor("value", kind),
        ListStateDescriptor("list", kind),
        MapStateDescriptor("map", kind, key_type=pa.string()),
        ValueStateDescriptor("inside", inside),
    ]
    return {state.name: state for state in states}


def declared_of_all_kinds(kind: pa.DataType) -> dict[str, StateDescriptor]:
    """The same, and those that are folded; with and without a time to live."""
    states = declared(kind)
    states["reduced"] = ReducingStateDescriptor("reduced", kind, reduce=last)
    states["aggregated"] = AggregatingStateDescriptor("aggregated", kind, aggregate=Last())
    expire = {f"{name}-ttl": state for name, state in states.items()}
    return states | {name: replace(state, name=name, options=TTL) for name, state in expire.items()}


def put(handle: Any, name: str, value: Any) -> None:
    """Into the state of that name."""
    name = name.removesuffix("-ttl")
    if name == "value":
        handle.update(value)
    elif name == "inside":
        handle.update({"one": value, "list": [value], "map": {"x": value}})
    elif name == "map":
        handle.put("x", value)
    else:
        handle.add(value)


def look(handle: Any, name: str) -> Any:
    """The one value that is there."""
    name = name.removesuffix("-ttl")
    if name == "map":
        return handle.get("x")
    if name == "list":
        return handle.get()[-1]
    if name == "inside":
        found = handle.value()
        assert repr(found) == repr(
            {"one": found["one"], "list": [found["one"]], "map": [("x", found["one"])]}
        )
        return found["one"]
    return handle.value() if name == "value" else handle.get()
