"""Names by which state is found: uids and names of states survive kills, or are refused."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pytest

import unistream as us
from tests.names import BY_CASE, ODD
from unistream.testing import Faults, simulate

UIDS: Final = [*(name for name in ODD.values() if name and name.isprintable()), *BY_CASE]
STATES: Final = [
    "a.b",
    "größe",
    "größ_",
    "n" * 300,
    "N" * 300,
    "-a",
    "1a",
    "select",
    "class",
    "None",
    "_a",
    *BY_CASE,
]
ROWS: Final = us.DatagenSource(
    {"id": us.datagen.Sequential(), "k": us.datagen.RandomInt(0, 3), "n": us.datagen.RandomInt(0, 1)}, rows=60
)
COUNTED: Final = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("n", pa.int64())])
KILLS: Final = Faults(kill_every_ms=500)


class Count(us.KeyedProcessFunction):
    """How often a key came, in a state of each of these names: all have to say the same."""

    def __init__(self, names: list[str]) -> None:
        self._states = [us.ValueStateDescriptor(name, pa.int64()) for name in names]

    def process_element(self, row: dict, context: us.ProcessContext, out: us.Collector) -> None:
        found: set[Any] = set()
        for number, state in enumerate(self._states):
            count = context.state(state)
            found.add((count.value() or number) - number)
            count.update((count.value() or number) + 1)
        assert len(found) == 1, found
        out.emit({**row, "n": found.pop()})


def rows(env: us.Environment) -> us.KeyedStream:
    read = env.from_source(ROWS, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    return read.key_by("k")


def with_states(env: us.Environment) -> None:
    rows(env).process(Count(STATES), returns=COUNTED).uid("count").sink_to(us.BlackholeSink()).uid("out")


def with_uids(env: us.Environment) -> None:
    stream = rows(env)
    for uid in UIDS:
        counted = stream.process(Count(["count"]), returns=COUNTED).uid(uid).name(uid)
        stream = counted.key_by("k")
    counted.sink_to(us.BlackholeSink()).uid("../out/%s")


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("pipeline", [with_states, with_uids])
def test_state_is_found_under_its_name(pipeline: Any, backend: str) -> None:
    report = simulate(pipeline, seeds=[1], faults=KILLS, config={"state.backend.type": backend})
    report.raise_for_failures()
    assert report.restarts
