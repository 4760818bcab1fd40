"""Any sequence of operations leaves in a backend what it leaves in plain dicts, also across restores."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.contract.keyed_states import BACKENDS
from tests.contract.state_bench import read
from tests.integration.crash_runs import in_the_gate
from unistream.base.ids import CheckpointId
from unistream.model.key_groups import key_group_range, key_groups, subtask_of_key_group
from unistream.model.keyed_snapshot import StateTable
from unistream.model.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from unistream.port.state import KeyedStateBackend
from unistream.state.backends import make_backend
from unistream.testing.harness.operators import ManualClock

MAX_PARALLELISM = 16
KEYS = [(f"k{n}" * (1 + n % 4), n % 3) for n in range(12)]
SCHEMA = pa.schema([("name", pa.string()), ("n", pa.int64())])


class Longest:
    """The longest text so far, and how many there were."""

    def create_accumulator(self) -> Any:
        return {"text": "", "count": 0}

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator["text"] = max(accumulator["text"], value, key=len)
        accumulator["count"] += 1
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return (accumulator["text"], accumulator["count"])

    def merge(self, one: Any, other: Any) -> Any:
        raise AssertionError("nothing merges here")


STATES: list[StateDescriptor] = [
    ValueStateDescriptor("value", pa.int64()),
    ValueStateDescriptor("nested", pa.list_(pa.int64())),
    ValueStateDescriptor("column", pa.int64()),
    ListStateDescriptor("list", pa.string()),
    MapStateDescriptor("map", pa.float64(), key_type=pa.int64()),
    ReducingStateDescriptor("sum", pa.int64(), reduce=lambda one, other: one + other),
    AggregatingStateDescriptor(
        "longest", pa.struct([("text", pa.string()), ("count", pa.int64())]), aggregate=Longest()
    ),
]

Model = dict[tuple[str, tuple[Any, ...]], Any]


class Subtasks:
    """Backends that share the key groups, and what they should hold."""

    def __init__(self, kind: str, folder: Path, parallelism: int, tables: Sequence[StateTable]) -> None:
        self.backends: list[KeyedStateBackend] = []
        for index in range(parallelism):
            backend = make_backend(
                kind,
                key_groups=key_group_range(MAX_PARALLELISM, parallelism, index),
                max_parallelism=MAX_PARALLELISM,
                folder=folder / f"{index}",
                clock=ManualClock(),
                memory_bytes=16 << 20,
                allow_pickled=False,
            )
            backend.restore(tables)
            self.backends.append(backend)

    def at(self, key: tuple[Any, ...], owner: int) -> KeyedStateBackend:
        backend = self.backends[owner]
        backend.set_current(backend.keys_of(pa.RecordBatch.from_pylist([_row(key)], schema=SCHEMA))[0])
        return backend

    def close(self) -> None:
        for backend in self.backends:
            backend.close()


def _row(key: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(SCHEMA.names, key, strict=True))


def owner_of(key: tuple[Any, ...], parallelism: int) -> int:
    batch = pa.RecordBatch.from_pylist([_row(key)], schema=SCHEMA)
    group = int(key_groups(batch, SCHEMA.names, MAX_PARALLELISM)[0])
    return subtask_of_key_group(MAX_PARALLELISM, parallelism, group)


def step(dice: random.Random, backend: KeyedStateBackend, key: tuple[Any, ...], model: Model) -> None:
    """One operation on one state of the current key, there and in the model."""
    declared = dice.choice(STATES)
    state, place = backend.state(declared), (declared.name, key)
    number = dice.randrange(1000)
    if dice.random() < 0.15:
        state.clear()
        model.pop(place, None)
    elif declared.name in ("value", "column"):
        state.update(number)
        model[place] = number
    elif declared.name == "nested":
        found = state.value() or []
        found.append(number)
        state.update(found)
        model[place] = [*model.get(place, []), number]
    elif declared.name == "list":
        added = [str(number)] * dice.randrange(1, 3)
        state.add_all(added)
        model[place] = [*model.get(place, []), *added]
    elif declared.name == "map":
        _step_map(dice, state, model, place, number)
    elif declared.name == "sum":
        state.add(number)
        model[place] = model.get(place, 0) + number
    else:
        text = "x" * (number % 9)
        state.add(text)
        longest, count = model.get(place, ("", 0))
        model[place] = (max(longest, text, key=len), count + 1)


def _step_map(dice: random.Random, state: Any, model: Model, place: Any, number: int) -> None:
    entries = dict(model.get(place, {}))
    entry = number % 5
    if dice.random() < 0.4:
        state.remove(entry)
        entries.pop(entry, None)
    else:
        state.put(entry, number / 2)
        entries[entry] = number / 2
    model[place] = entries
    if not entries:
        del model[place]


def step_column(dice: random.Random, backend: KeyedStateBackend, keys: list[Any], model: Model) -> None:
    """Half of the keys of a subtask get a value, or lose it, at once."""
    chosen = dice.sample(keys, k=(len(keys) + 1) // 2)
    values = [dice.choice([None, dice.randrange(1000)]) for _ in chosen]
    batch = pa.RecordBatch.from_pylist([_row(key) for key in chosen], schema=SCHEMA)
    column = backend.column(STATES[2])
    column.put(backend.keys_of(batch), pa.array(values, pa.int64()))
    assert column.get(backend.keys_of(batch)).to_pylist() == values
    for key, number in zip(chosen, values, strict=True):
        model.pop(("column", key), None)
        if number is not None:
            model["column", key] = number


def held(subtasks: Subtasks) -> Model:
    """What handles show, key by key."""
    found: Model = {}
    for key in KEYS:
        backend = subtasks.at(key, owner_of(key, len(subtasks.backends)))
        for declared in STATES:
            state = backend.state(declared)
            look = {
                "list": lambda s=state: list(s.get()),
                "map": lambda s=state: dict(s.items()),
                "sum": lambda s=state: s.get(),
                "longest": lambda s=state: s.get(),
            }.get(declared.name, lambda s=state: s.value())
            seen = look()
            if seen:
                found[declared.name, key] = seen
    return found


@pytest.mark.parametrize("kind", BACKENDS)
@pytest.mark.parametrize("seed", in_the_gate(range(8), 0, 1, 2))
def test_a_backend_holds_what_plain_dicts_would(kind: str, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    model: Model = {}
    tables: list[StateTable] = []
    for life in range(4):
        parallelism = dice.choice([1, 2, 3, 5])
        subtasks = Subtasks(kind, tmp_path / str(life), parallelism, tables)
        if life % 2:  # the other storage comes first
            for backend in subtasks.backends:
                backend.column(STATES[2])
        assert held(subtasks) == {place: seen for place, seen in model.items() if seen}
        snapshots: list[Any] = []
        then: Model = {}
        for number in range(120):
            if number == 60:
                snapshots = [backend.snapshot(CheckpointId(life + 1)) for backend in subtasks.backends]
                then = dict(model)
            if dice.random() < 0.1:
                owner = dice.randrange(parallelism)
                mine = [key for key in KEYS if owner_of(key, parallelism) == owner]
                step_column(dice, subtasks.backends[owner], mine, model)
            else:
                key = dice.choice(KEYS)
                step(dice, subtasks.at(key, owner_of(key, parallelism)), key, model)
        assert held(subtasks) == {place: seen for place, seen in model.items() if seen}
        tables, model = [table for snapshot in snapshots for table in read(snapshot)], then
        subtasks.close()
