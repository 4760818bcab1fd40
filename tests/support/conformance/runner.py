"""Runs the cases and reports the results."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.support.conformance.case import Comparison, SkipCase, shown
from tests.support.conformance.files import Found

TEXT_CHARS_MAX: Final = 2_000  # of one side of a comparison
NAMES_SHOWN_MAX: Final = 6  # of the cases that were skipped for one reason


@dataclass(slots=True)
class Outcome:
    """Result of a run."""

    passed: int = 0
    failed: list[tuple[Found, Comparison]] = field(default_factory=list)
    skipped: list[tuple[Found, SkipCase]] = field(default_factory=list)

    @property
    def played(self) -> int:
        """The number of compared cases."""
        return self.passed + len(self.failed)

    @property
    def summary(self) -> str:
        return f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"


def run_case(found: Found) -> Comparison:
    """Plays one case; an error is the result of our machine.

    Raises:
        SkipCase: it cannot apply, by design.
    """
    try:
        return found.case.run()
    except SkipCase:
        raise
    except Exception as error:  # any error of a case is its result
        frames = "".join(traceback.format_exception(error)[-3:])
        return Comparison("no error", f"{type(error).__name__}: {error}\n{frames}")


def run_cases(cases: Iterable[Found]) -> Outcome:
    """Runs all cases, one after the other."""
    outcome = Outcome()
    for found in cases:
        try:
            comparison = run_case(found)
        except SkipCase as skipped:
            outcome.skipped.append((found, skipped))
            continue
        if comparison.expected == comparison.actual:
            outcome.passed += 1
        else:
            outcome.failed.append((found, comparison))
    return outcome


def report(outcome: Outcome) -> Iterator[str]:
    """Lines for people: failures with both sides, skipped cases by reason, and the numbers last.

    Of what a test of ours shows instead, all are listed, with the test.
    """
    for found, comparison in outcome.failed:
        expected, actual = differing(comparison)
        yield f"FAILED {found.title}"
        yield f"  expected {_cut(shown(expected))}"
        yield f"  actual   {_cut(shown(actual))}"
    by_reason: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for found, why in outcome.skipped:
        by_reason.setdefault(why.reason, []).append((found.title, why.shown_by))
    for reason, members in by_reason.items():
        yield f"skipped {len(members)}: {reason}"
        for title, tests in members:
            if tests:
                yield f"  {title}"
            for test in tests:
                yield f"    -> {test}"
        names = [title for title, tests in members if not tests]
        more = f", and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
        if names:
            yield f"  {'; '.join(names[:NAMES_SHOWN_MAX])}{more}"
    yield outcome.summary


def differing(comparison: Comparison) -> tuple[object, object]:
    """Both sides without what is equal, where they are mappings or lists of one length."""
    expected, actual = comparison.expected, comparison.actual
    if isinstance(expected, dict) and isinstance(actual, dict):
        keys = [k for k in {**expected, **actual} if expected.get(k) != actual.get(k)]
        return {k: expected.get(k) for k in keys}, {k: actual.get(k) for k in keys}
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        places = [i for i, (a, b) in enumerate(zip(expected, actual, strict=True)) if a != b]
        return {i: expected[i] for i in places}, {i: actual[i] for i in places}
    return expected, actual


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}…"
