"""Nothing is left in words without a test of ours, or skipped for a reason that is not known here."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.support.conformance.case import SkipCase
from tests.support.conformance.files import Found, find_cases
from tests.support.conformance.prose import (
    IN_WORDS,
    NOT_APPLICABLE,
    NOT_NAMED,
    PROSE,
    SHOWN_BY,
    in_words,
)
from tests.support.conformance.runner import run_cases

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BY_DESIGN = {
    "rules in words: the cases of the same file show them",
    "names of Flink's tests: the cases are taken from them",
    "a key is one or several columns of Arrow types; List<Integer> is none of them",
    "there is no edge of this kind here",
    *(reason for section in NOT_APPLICABLE.values() for reason in section.values()),
}
NAMED = sorted({test for section in SHOWN_BY.values() for tests in section.values() for test in tests})


@cache
def skipped() -> list[tuple[Found, SkipCase]]:
    return run_cases(find_cases(sorted(HERE.glob("*.json")))).skipped


@cache
def names_in(path: str) -> frozenset[str]:
    """Names of the tests in a file of ours; none if there is no such file."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


@pytest.mark.parametrize("named", NAMED)
def test_a_test_that_is_named_exists(named: str) -> None:
    path, _, name = named.partition("::")
    assert name in names_in(path), f"{path} has no such test"


def is_shown(why: SkipCase) -> bool:
    """Whether tests of ours show what the case says, and the reason names them; or it cannot apply."""
    if why.reason != IN_WORDS:
        return why.reason in BY_DESIGN and not why.shown_by
    tests = [named.partition("::") for named in why.shown_by]
    return all(name in names_in(path) and path + "::" + name in str(why) for path, _, name in tests)


def test_what_is_skipped_is_shown_by_a_test_or_cannot_apply() -> None:
    assert [(found.title, str(why)) for found, why in skipped() if not is_shown(why)] == []


@pytest.mark.parametrize(
    "why",
    [
        SkipCase(NOT_NAMED),
        SkipCase("another reason"),
        SkipCase(IN_WORDS, "tests/conformance/test_conformance_prose.py::test_there_is_none"),
        SkipCase(next(iter(BY_DESIGN)), NAMED[0]),
    ],
    ids=[
        "no test of ours shows it",
        "a reason that is not known",
        "no such test",
        "shown, though it cannot be",
    ],
)
def test_what_is_not_shown_is_seen(why: SkipCase) -> None:
    assert not is_shown(why)


def test_nothing_is_named_that_no_file_says() -> None:
    titles = {(found.section, found.case.name.rpartition(": ")[2]) for found, _ in skipped()}
    titles |= {(found.section, found.case.name) for found, _ in skipped()}
    titles |= {("configurationDefaults", found.case.name) for found, _ in skipped()}
    for table in (SHOWN_BY, NOT_APPLICABLE):
        for section, words in table.items():
            for key in words:
                start = key.removesuffix("…")
                assert any(s == section and title.startswith(start) for s, title in titles), (section, key)


@pytest.mark.parametrize(
    ("section", "words", "reason"),
    [
        pytest.param("sequences", "cancel", IN_WORDS, id="by its name"),
        pytest.param("sequences", "cancelled twice", NOT_NAMED, id="not by the beginning of its name"),
        pytest.param(
            "invariants", "open order tail->head, and more", IN_WORDS, id="long words, if it is marked"
        ),
        pytest.param("nothing", "cancel", NOT_NAMED, id="of another section"),
    ],
)
def test_how_words_are_found(section: str, words: str, reason: str) -> None:
    assert in_words(section, words).reason == reason


def test_a_section_in_words_has_no_machine() -> None:
    played = {found.section for found in find_cases(sorted(HERE.glob("*.json")))} - {
        found.section for found, _ in skipped()
    }
    assert not played & PROSE
