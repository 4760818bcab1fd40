"""What commands report of backfills and upgrades, on both databases."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import structs

from tests.contract.given_metadata import job_id
from tests.metadata_rows import change, rows
from unistream.base.errors import ConfigError
from unistream.metadata import tables as t
from unistream.metadata.store import SqlMetadataStore
from unistream.model.procedures import (
    ID_CHARS_MAX,
    STEPS_MAX,
    TEXT_CHARS_MAX,
    ListedProcedures,
    ProcedureKind,
    ProcedureReport,
    ProcedureState,
    merged,
)
from unistream.port.procedures import PROCEDURES_KEPT, Procedures

REPORT = ProcedureReport(
    id="upgrade ü",
    kind=ProcedureKind.UPGRADE,
    job_name="orders",
    job=job_id(1),
    steps=("stop", "start"),
    done=0,
    state=ProcedureState.RUNS,
)


@pytest.fixture
def procedures(metadata: SqlMetadataStore) -> Procedures:
    return metadata.procedures


def test_the_newest_report_of_each_is_listed_the_last_reported_first(procedures: Procedures) -> None:
    other = structs.replace(REPORT, id="b", kind=ProcedureKind.BACKFILL, job=None)
    procedures.report(REPORT, 1_000)
    procedures.report(other, 1_010)
    procedures.report(structs.replace(REPORT, done=1, text="stopped"), 1_020)
    first, second = procedures.procedures().procedures
    assert (first.report.text, first.report.done) == ("stopped", 1)
    assert (first.begun_ms, first.reported_ms) == (1_000, 1_020)
    assert second.report == other
    assert procedures.procedures(job_id(1)) == ListedProcedures((first,))
    assert procedures.procedures(job_id(2)) == ListedProcedures(())


def test_told_twice_and_late_it_is_the_same(procedures: Procedures) -> None:
    ended = structs.replace(REPORT, done=2, state=ProcedureState.DONE)
    procedures.report(ended, 2_000)
    procedures.report(ended, 2_000)
    procedures.report(structs.replace(REPORT, done=1), 1_500)
    [found] = procedures.procedures().procedures
    assert (found.report, found.reported_ms) == (ended, 2_000)


def test_the_newest_are_kept(procedures: Procedures) -> None:
    for number in range(PROCEDURES_KEPT + 3):
        procedures.report(structs.replace(REPORT, id=f"{number}"), number)
    found = procedures.procedures().procedures
    assert [one.report.id for one in found] == [f"{n}" for n in reversed(range(3, PROCEDURES_KEPT + 3))]


STATES = list(ProcedureState)


@pytest.mark.parametrize(("before", "after"), list(itertools.product(STATES, STATES)))
def test_an_end_stays_an_end(before: ProcedureState, after: ProcedureState) -> None:
    found = merged(structs.replace(REPORT, state=before, done=1), structs.replace(REPORT, state=after))
    assert found.state is (before if before.is_end and not after.is_end else after)
    assert found.done == 1, "and what is done is done"


def test_what_a_later_version_has_reported_is_named_and_stays(
    procedures: Procedures, database_url: str
) -> None:
    later: dict[str, Callable[[dict[str, Any]], object]] = {
        "with a field": lambda report: report.update(asked_by="me"),
        "of a kind": lambda report: report.update(kind="repartition"),
        "in a state": lambda report: report.update(state="PAUSED"),
    }
    for at_ms, name in enumerate(["known", *later]):
        procedures.report(structs.replace(REPORT, id=name), at_ms)
    for name, rewrite in later.items():
        report = msgspec.to_builtins(structs.replace(REPORT, id=name))
        rewrite(report)
        change(database_url, t.procedures, name, report=json.dumps(report))
    written = rows(database_url, t.procedures, "report", "reported_ms")
    found = procedures.procedures(job_id(1))
    assert ([one.report.id for one in found.procedures], found.unreadable) == (
        ["known"],
        tuple(reversed(later)),
    )
    for name in later:
        with pytest.raises(ConfigError, match="by another version of unistream"):
            procedures.report(structs.replace(REPORT, id=name, state=ProcedureState.DONE), 9)
    assert rows(database_url, t.procedures, "report", "reported_ms") == written


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"id": ""}, "has 1 to 255 characters, this one 0"),
        ({"id": "x" * (ID_CHARS_MAX + 1)}, "this one 256"),
        ({"id": "a\0b"}, "a text has a NUL"),
        ({"goes_on": "a\0b"}, "a text has a NUL"),
        ({"steps": ("x" * (TEXT_CHARS_MAX + 1),)}, "more than 4,000 characters"),
        ({"steps": ()}, "has 0 steps, of which 0 are done"),
        ({"steps": ("x",) * (STEPS_MAX + 1)}, "has 21 steps"),
        ({"done": 3}, "of which 3 are done"),
        ({"done": -1}, "of which -1 are done"),
    ],
)
def test_what_cannot_be_stored_is_refused(
    procedures: Procedures, changes: dict[str, object], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        procedures.report(structs.replace(REPORT, **changes), 1)
    assert procedures.procedures() == ListedProcedures(())
