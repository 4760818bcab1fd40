"""What a sink shows without any fault, held against the rows that reach it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pytest

from unistream.port.dead_letters import LETTER_SCHEMA
from unistream.testing.simulation import SeedFailure, SimulationReport
from unistream.testing.simulation.report import Difference, OutputRows, comparable
from unistream.testing.simulation.run import QUIET
from unistream.testing.simulation.truth import judged

NOON = dt.datetime(2026, 1, 1, 12)  # noqa: DTZ001  as a column without a zone gives it
KN = ("k", "n")


def verdict(want: OutputRows, have: dict[str, OutputRows]) -> Any:
    return judged({"out": "mine"}, {"out": want} if want.rows else {}, have)


@pytest.mark.parametrize(
    ("want", "have", "by"),
    [
        pytest.param(
            OutputRows(KN, [("a", 1), ("b", 2)]), OutputRows(KN, [("b", 2), ("a", 1)]), "by k, n", id="order"
        ),
        pytest.param(
            OutputRows(KN, [("a", 1)]), OutputRows(("n", "k"), [(1, "a")]), "by k, n", id="order of columns"
        ),
        pytest.param(
            OutputRows(KN, [("a", 1)]), OutputRows((), [("a", 1)]), "by k, n", id="rows without names"
        ),
        pytest.param(
            OutputRows(KN, [("a", 1)]), OutputRows((*KN, "tx"), [("a", 1, 7)]), "by k, n", id="more columns"
        ),
        pytest.param(
            OutputRows(KN, [("a", 1)]), OutputRows(("n",), [(1,)]), "by n ('k' is not in it)", id="fewer"
        ),
        pytest.param(
            OutputRows(KN, [("a", 1.0)]), OutputRows(KN, [("a", 1)]), "by k, n", id="whole numbers of floats"
        ),
        pytest.param(
            OutputRows(KN, [("a", 12_345_678_901.0)]),
            OutputRows(KN, [("a", 12_345_678_901)]),
            "by k, n",
            id="large ones",
        ),
        pytest.param(
            OutputRows(KN, [("a", 1)]), OutputRows(KN, [("a", np.int64(1))]), "by k, n", id="numbers of numpy"
        ),
        pytest.param(
            OutputRows(KN, [("a", True)]), OutputRows(KN, [("a", 1)]), "by k, n", id="truth as a number"
        ),
        pytest.param(OutputRows(KN, [("a", None)]), OutputRows(KN, [("a", None)]), "by k, n", id="nulls"),
        pytest.param(
            OutputRows(("k", "t"), [("a", NOON)]),
            OutputRows(("k", "t"), [("a", "2026-01-01T12:00:00")]),
            "by k ('t' is a time, and text in it)",
            id="times as text",
        ),
        pytest.param(
            OutputRows(("k", "t"), [("a", NOON)]),
            OutputRows(("k", "t"), [("a", NOON.replace(tzinfo=dt.UTC))]),
            "by k ('t' is a time, and a time with a zone in it)",
            id="times with a zone",
        ),
        pytest.param(
            OutputRows(("k", "l"), [("a", [{"at": NOON}])]),
            OutputRows(("k", "l"), [("a", [{"at": "noon"}])]),
            "by k ('l' is a time, and text in it)",
            id="times inside of lists",
        ),
        pytest.param(
            OutputRows(("k", "d"), [("a", Decimal("0.1"))]),
            OutputRows(("k", "d"), [("a", 0.1)]),
            "by k ('d' is a decimal, and a number in it)",
            id="decimals as numbers",
        ),
        pytest.param(
            OutputRows(KN, [("a", 1), ("b", 2)]),
            OutputRows((), [(1,), (2,)]),
            "by their number only (its values are not rows of k, n)",
            id="values",
        ),
        pytest.param(OutputRows((), []), OutputRows((), []), "by their number only", id="no row at all"),
    ],
)
def test_equal_rows(want: OutputRows, have: OutputRows, by: str) -> None:
    found = verdict(want, {"out": have})
    assert found.wrong == []
    [sentence] = found.compared
    assert sentence == (
        f"sink 'out' (mine) is kept: without faults, the {len(want.rows)} row(s) that reach it were "
        f"compared with its output {by}"
    )


@pytest.mark.parametrize(
    ("want", "have", "text"),
    [
        pytest.param(
            OutputRows(KN, [("a", 1)] * 200), OutputRows((), []), "200 row(s) lost", id="a sink without a row"
        ),
        pytest.param(
            OutputRows(KN, [("a", 1)]), OutputRows(KN, [("a", 1)] * 2), "1 row(s) doubled", id="doubled"
        ),
        pytest.param(
            OutputRows(KN, [("a", 1)]), OutputRows(KN, [("a", 2)]), "1 row(s) not expected", id="other values"
        ),
        pytest.param(
            OutputRows(KN, [("a", 1)]), OutputRows(KN, [("a", None)]), "('a', None)", id="nulls for values"
        ),
        pytest.param(
            OutputRows(("k",), [("a",)]), OutputRows(("t",), []), "and its output shows 0", id="nothing alike"
        ),
        pytest.param(
            OutputRows(KN, [("a", 1), ("b", 2)]),
            OutputRows((), [(1,)]),
            "2 row(s) reach sink 'out' (mine)",
            id="values",
        ),
        pytest.param(OutputRows((), []), OutputRows(KN, [("a", 1)]), "('a', 1)", id="rows from nowhere"),
        pytest.param(
            OutputRows(("k", "t"), [("a", NOON), ("b", NOON)]),
            OutputRows(("k", "t"), [("a", "noon"), ("a", "noon")]),
            "('b',)",
            id="other values next to a column that is left out",
        ),
    ],
)
def test_other_rows(want: OutputRows, have: OutputRows, text: str) -> None:
    found = verdict(want, {"out": have})
    [wrong] = found.wrong
    assert "sink 'out' (mine)" in wrong
    assert text in wrong
    assert "If it shows something else, such as totals, give it another name" in wrong


@pytest.mark.parametrize(
    ("have", "wrong"),
    [
        pytest.param({"rows": OutputRows((), [])}, 1, id="no output shows anything"),
        pytest.param({"rows": OutputRows((), [(9,)])}, 0, id="an output under another name"),
        pytest.param(
            {"rows": OutputRows((), [(9,)]), "more": OutputRows((), [])}, 0, id="one of two shows something"
        ),
    ],
)
def test_a_sink_that_no_output_is_named_after(have: dict[str, OutputRows], wrong: int) -> None:
    found = verdict(OutputRows(KN, [("a", 1)]), have)
    assert len(found.wrong) == wrong
    assert all(text.startswith("1 row(s) reach sink 'out' (mine)") for text in found.wrong)
    [sentence] = found.compared
    assert "no output reads them; pass outputs={'out': ...}" in sentence


def test_a_report_without_a_seed_says_so() -> None:
    failure = SeedFailure(seed=None, reason="sink 'out' shows other rows", faults=QUIET.faults)
    report = SimulationReport(
        seeds=0, failures=(failure,), replaced=(), restarts=0, seconds=0.1, compared=("rows were compared",)
    )
    assert not report.ok
    assert str(report).splitlines() == [
        "the run without faults failed, so no seed was tried; 0.1 s",
        "  rows were compared",
        "",
        "sink 'out' shows other rows",
    ]


def test_a_report_for_programs_counts_rows_and_shows_the_first() -> None:
    rows = {("a", n): 2 for n in range(9)}
    lost = Difference(sink="out", columns=("k", "n"), lost=rows, doubled={}, foreign={})
    failure = SeedFailure(seed=3, reason="rows were lost", faults=QUIET.faults, differences=(lost,))
    report = SimulationReport(seeds=5, failures=(failure,), replaced=(), restarts=1, seconds=0.1)
    found = msgspec.json.decode(msgspec.json.encode(report.for_programs()))
    assert (found["ok"], found["seeds"], [one["seed"] for one in found["failures"]]) == (False, 5, [3])
    [shown] = found["failures"][0]["differences"]
    assert (shown["lost"]["rows"], shown["lost"]["first"][0], shown["doubled"]["rows"]) == (18, "('a', 0)", 0)
    assert len(shown["lost"]["first"]) < len(rows)


def test_dead_letters_are_compared_by_row_and_error_and_other_rows_whole() -> None:
    letter = {name: f"{name} 1" for name in LETTER_SCHEMA.names}
    of_run = letter | {"letter": "2", "time": "2", "attempt": "2", "job": "2"}
    columns = tuple(LETTER_SCHEMA.names)
    first, again, other = (
        comparable(OutputRows(columns, [tuple(one.values())]))
        for one in (letter, of_run, letter | {"error": "2"})
    )
    assert first == again != other
    assert first.columns == (
        "row",
        "event_time",
        "error_type",
        "error",
        "error_at",
        "operator_uid",
        "operator",
    )
    some = OutputRows(("letter", "time"), [("1", "1")])
    assert comparable(some) is some, "columns of a user's own"
