"""A changed expectation is noticed: every value that a case expects is changed, one at a time, and then the
case does not end as before.

`EXPECTED` tells which fields of a section are expectations (the others are what is done to the machine); the
exceptions are in `UNNOTICED`, each with the reason.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.conformance.files import SHAPES, Found, cases_of
from tests.support.conformance.runner import run_cases

HERE = Path(__file__).parent
CHANGES_MAX: Final = 20  # of one entry, evenly among all: some have thousands of key groups
DROP: Final = "the last one is gone"
Place = tuple[str | int, ...]

EXPECTED: Final[dict[str, tuple[str, ...]]] = {
    "cases": ("expected", "steps.newlyScheduled", "regions", "failures.restarts"),
    "resultPartitionTypes": ("reconsumable", "bounded", "persistent", "consuming", "releasedBy"),
    "pointwiseEdgeMapping": ("mapping",),
    "restartBackoff": ("timeline.newAttempt", "timeline.canRestart", "timeline.backoffMs"),
    "exponentialJitter": ("allowedBackoffAfterNthFailure",),
    "configurationDefaults": ("default",),
    "ranges": ("keyGroupRangePerSubtask", "operatorIndexOfKeyGroup"),
    "defaultMaxParallelism": ("defaultMaxParallelism",),
    "hashes": ("murmur", "keyGroupFor*"),
    "javaKeys": ("hashCode", "keyGroupFor*", "subtaskFor*"),
    "preconditionErrors": ("error",),
    "keyGroupRangeIntersections": ("intersection",),
    "plans": ("expected",),
    "failureManager": ("events.failsJob",),
    "failureReasons": ("countsTowardsTolerableFailures", "preFlight"),
    "requestQueue": ("steps.expected",),
    "operatorState": ("new",),
    "keyedState": ("sourcesOfNewSubtask",),
    "inFlightMappers": ("vectors.ambiguous", "vectors.oldSubtasksOfNewSubtask", "perPartitioner"),
    "finishedStateOfCheckpoint": ("expected",),
    "finishedStateOnRestore": ("expected",),
    "watermarkValve": ("steps.out",),
    "combinedWatermark": ("steps.out",),
    "barrierHandling": ("steps.out", "steps.blocked", "end"),
    "observedTraces": ("jobResult", "segments.perTask", "segments.perSubtask"),
    "wireEvents": ("output",),
    "failurePhases": ("effect",),
    "notificationVectors": ("operatorSeesComplete",),
    "twoPhaseCommitSinkFunction": ("expected",),
}


# --- changes --------------------------------------------------------------------------------------


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Of all leaves, and of all lists, from which the last item is dropped."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*place, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from places(item, (*place, number))
        if value:
            yield (*place, DROP)
    else:
        yield place


def fields(place: Place) -> str:
    return ".".join(part for part in place if isinstance(part, str) and part != DROP)


def is_expected(section: str, place: Place) -> bool:
    """At or below one of the paths; a list that is on the way to one is no expectation."""
    path = fields(place)
    return any(
        path == outer or path.startswith(f"{outer}.") or (outer.endswith("*") and path.startswith(outer[:-1]))
        for outer in EXPECTED[section]
    )


def changed(entry: Any, place: Place) -> Any:
    entry = copy.deepcopy(entry)
    inside = entry
    for part in place[:-1]:
        inside = inside[part]
    if place[-1] == DROP:
        inside.pop()
        return entry
    value = inside[place[-1]]
    if isinstance(value, bool):
        inside[place[-1]] = not value
    elif isinstance(value, int | float):
        inside[place[-1]] = value + 1
    else:
        inside[place[-1]] = "X" if value is None else value + "X"
    return entry


def at(entry: Any, place: Place) -> Any:
    for part in place:
        entry = entry[part]
    return entry


# --- what nobody notices, and why -----------------------------------------------------------------


@dataclass(frozen=True)
class Unnoticed:
    section: str
    why: str
    fits: Callable[[Any, Place], bool]


def _is_empty_state(entry: Any, place: Place) -> bool:
    """Within ``new``: a handle, or a state of it, that has no elements."""
    if place[-1] == DROP:
        dropped = at(entry, place[:-1])[-1]
        return isinstance(dropped, dict) and not any(s["offsets"] for s in dropped["states"].values())
    handle = at(entry, place[:3])
    if place[-1] == "handle":
        return not any(state["offsets"] for state in handle["states"].values())
    return not at(entry, place[:5])["offsets"]


def _is_another_copy(entry: Any, place: Place) -> bool:
    """One of several handles that hold the same broadcast states."""
    if place[-1] != DROP or len(place) != 3:
        return False
    states = [handle["states"] for handle in at(entry, place[:-1])]
    modes = {state["mode"] for state in states[-1].values()}
    return modes == {"BROADCAST"} and states[-1] in states[:-1]


def _is_sampled(entry: Any, place: Place) -> bool:
    """``[key group, owner]``: which key groups were sampled is no expectation."""
    is_pairs = isinstance(entry["operatorIndexOfKeyGroup"][0], list)
    return is_pairs and place[0] == "operatorIndexOfKeyGroup" and (place[-1] == DROP or place[2] == 0)


UNNOTICED: Final = (
    Unnoticed("operatorState", "nobody is handed a state without elements", _is_empty_state),
    Unnoticed("operatorState", "one of several equal copies is as good as all", _is_another_copy),
    Unnoticed("ranges", "one key group has the owner of the next, or is not asked for", _is_sampled),
    Unnoticed(
        "inFlightMappers",
        "there is no edge of this kind here: skipped",
        lambda _, place: place[0] == "perPartitioner" and place[1] in ("shuffle", "custom"),
    ),
)


# --- the tests ------------------------------------------------------------------------------------


def entries() -> Iterator[Any]:
    """(section, an entry as it is read) of all sections that a machine reads."""
    for file in sorted(HERE.glob("*.json")):
        for section, value in json.loads(file.read_text()).items():
            if section in EXPECTED:
                yield pytest.param(section, value, id=f"{file.stem} {section}")


def outcome(section: str, value: Any) -> tuple[int, list[str], list[str]]:
    """How many passed, which failed and which were skipped for what."""
    found = run_cases(Found(HERE, section, case) for case in cases_of(section, value))
    skipped = [f"{one.title}: {why}" for one, why in found.skipped]
    return found.passed, [one.title for one, _ in found.failed], skipped


def unnoticed(section: str, value: Any) -> tuple[list[str], int]:
    """Changes that changed nothing although they are no exception, and how many changes there were."""
    missed, done = [], 0
    whole = isinstance(value, dict)
    for entry in [value] if whole else value:
        before = outcome(section, entry if whole else [entry])
        if not before[0]:
            continue  # it is skipped
        found = [place for place in places(entry) if is_expected(section, place)]
        for place in found[:: 1 + len(found) // (CHANGES_MAX * (5 if whole else 1))]:
            if any(one.section == section and one.fits(entry, place) for one in UNNOTICED):
                continue
            done += 1
            other = changed(entry, place)
            if outcome(section, other if whole else [other]) == before:
                missed.append(f"{str(entry)[:60]} at {place}")
    return missed, done


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Tasks that fail on purpose say so."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_all_sections_that_a_machine_reads_have_expectations() -> None:
    assert set(EXPECTED) == {shape.section for shape in SHAPES}


@pytest.mark.parametrize(("section", "value"), list(entries()))
def test_a_changed_expectation_is_noticed(section: str, value: Any) -> None:
    missed, done = unnoticed(section, value)
    assert missed == []
    assert done, "there was something to change"


@pytest.mark.parametrize("exception", UNNOTICED, ids=lambda one: one.why)
def test_an_exception_is_one(exception: Unnoticed) -> None:
    assert excepts_something(exception), "nothing is excepted by it any more"


def excepts_something(exception: Unnoticed) -> bool:
    """Something in the files is excepted by it, and indeed unnoticed."""
    for file in sorted(HERE.glob("*.json")):
        value = json.loads(file.read_text()).get(exception.section)
        for entry in [value] if isinstance(value, dict) else value or []:
            wrap = (lambda one: one) if isinstance(value, dict) else (lambda one: [one])
            for place in places(entry):
                if not is_expected(exception.section, place) or not exception.fits(entry, place):
                    continue
                before = outcome(exception.section, wrap(entry))
                if outcome(exception.section, wrap(changed(entry, place))) == before:
                    return True
    return False
