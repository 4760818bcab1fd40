"""Every sink by dimensions: kind of value × where it stands and how rows get there × a new table or one with
rows × what others do to it meanwhile × who is killed where.

Each pair of them at each commit (of the kinds those that differ), all of them at night. Whatever happens,
readers that are not ours find each row once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.contract.sinks.play import Play, dimensions, is_possible
from tests.contract.sinks.rig import NEVER, NEW, NOBODY, NOTHING, Combination, Rig
from tests.contract.sinks.rigs.every import RIGS
from tests.contract.sinks.values import IN_THE_GATE, KINDS, batch
from tests.pairwise import every, pairwise
from unistream.base.crash_points import passing
from unistream.base.errors import ConfigError

APART = [("kind", "foreign"), ("kind", "killed"), ("foreign", "killed")]
"""What they have to do with each other the way of writing shows: each is tried with every other dimension."""


def marked(name: str, *values: object, id: str) -> object:
    return pytest.param(name, *values, id=id, marks=[pytest.mark.kafka] if name == "kafka" else [])


def in_the_gate(rig: type[Rig]) -> Mapping[str, Sequence[str]]:
    every_kind = dimensions(rig)
    return {**every_kind, "kind": [kind for kind in every_kind["kind"] if kind in IN_THE_GATE]}


PAIRS = [
    marked(name, one, id=f"{name}: {one}")
    for name, rig in RIGS.items()
    for one in (Combination(**row) for row in pairwise(in_the_gate(rig), is_possible(rig), APART))
]
WAYS = [
    marked(name, kind, way, id=f"{name}: {kind}, {way}")
    for name, rig in RIGS.items()
    for kind in rig.kinds
    for way in rig.ways
    if (kind, way) not in rig.refused
]


# a thread in which the process has died
pytestmark = pytest.mark.filterwarnings("ignore:Exception in thread delta-compaction")


@pytest.mark.parametrize(("name", "one"), PAIRS)
def test_each_row_is_there_once(
    name: str, one: Combination, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    Play(RIGS[name](tmp_path, request.getfixturevalue), one).expect_each_row_once()


@cache
def combinations(name: str) -> list[Combination]:
    return [Combination(**row) for row in every(dimensions(RIGS[name]), is_possible(RIGS[name]))]


@pytest.mark.parametrize(("name", "kind", "way"), WAYS)
def test_each_row_is_there_once_in_every_combination(
    name: str, kind: str, way: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    wrong = []
    for number, one in enumerate(combinations(name)):
        if (one.kind, one.way) == (kind, way):
            place = tmp_path / str(number)
            place.mkdir()
            try:
                Play(RIGS[name](place, request.getfixturevalue), one).expect_each_row_once()
            except Exception as error:
                wrong.append(f"{one}\n    {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", [marked(name, id=name) for name in RIGS])
def test_no_step_is_left_out(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A new crash point of a connector is one more place at which the suite kills."""
    rig = RIGS[name]
    for number, (way, one) in enumerate(rig.ways.items()):
        kind = next(kind for kind in ("64 bits", "text") if (kind, way) not in rig.refused)
        place = tmp_path / str(number)
        passed: list[str] = []
        place.mkdir()
        with passing(passed.append):
            playing = Play(
                rig(place, request.getfixturevalue), Combination(kind, way, NEW, NOTHING, NEVER, NOBODY)
            )
            playing.expect_each_row_once()
        assert set(passed) == {*rig.staging, *rig.steps, *one.steps}, way


@pytest.mark.parametrize("name", [marked(name, id=name) for name in RIGS])
def test_what_does_not_fit_is_refused_before_anything_is_written(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rig = RIGS[name](tmp_path, request.getfixturevalue)
    refused = dict[tuple[str, str], str]()
    for kind, values in KINDS.items():
        for way, one in rig.ways.items():
            try:
                rig.sink(one).check(batch(values, first=0, n=0).schema)
            except ConfigError as error:
                refused[kind, way] = str(error)
    assert set(refused) == set(rig.refused)
    assert all("'v'" in message for message in refused.values()), "the column is named"
    assert rig.is_empty()
