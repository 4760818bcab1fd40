"""Finds the cases in files and folders, by the shape of what they hold; names mean nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.conformance import (
    checkpoint_plan,
    failover,
    key_groups,
    lifecycle,
    phases,
    regions,
    scheduling,
    state_redistribution,
    two_phase_commit,
    watermarks,
    wire,
)
from tests.support.conformance.case import Case, Comparison, Shape, SkipCase, name_of, skipped
from tests.support.conformance.prose import PROSE, in_words
from unistream.base.errors import NotFound

MODULES: Final = (
    regions,
    scheduling,
    failover,
    key_groups,
    checkpoint_plan,
    state_redistribution,
    watermarks,
    lifecycle,
    wire,
    phases,
    two_phase_commit,
)
SHAPES: Final[tuple[Shape, ...]] = tuple(shape for module in MODULES for shape in module.SHAPES)
DESCRIPTION: Final = "about"  # of the file itself; neither a case nor skipped
OPERATORS: Final = "area"  # a field of cases of operators
EXPLANATIONS: Final = {
    "rules": "rules in words: the cases of the same file show them",
    "flinkTests": "names of Flink's tests: the cases are taken from them",
}


@dataclass(frozen=True, slots=True)
class Found:
    """A case, its file and its section."""

    file: Path
    section: str
    case: Case

    @property
    def title(self) -> str:
        return f"{self.file.name} {self.section}: {self.case.name}"


def find_cases(paths: Iterable[Path]) -> Iterator[Found]:
    """All cases of these files, and of all files below these folders; others are skipped cases.

    Raises:
        NotFound: there is no such file or folder.
    """
    for path in paths:
        if not path.exists():
            raise NotFound(f"{path}: no such file or folder")
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                yield from _in_file(file)


def _in_file(file: Path) -> Iterator[Found]:
    if file.suffix != ".json":
        why = SkipCase("a text, not cases: it has no suffix .json")
        yield Found(file, "-", skipped("(the file)", why))
        return
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # RecursionError: nested too deeply
        yield Found(file, "-", Case("(the file)", _raising(f"unreadable: {error}")))
        return
    if not isinstance(content, dict):
        why = SkipCase("no sections: the file is not a JSON object")
        yield Found(file, "-", skipped("(the file)", why))
        return
    for section, value in content.items():
        if section != DESCRIPTION:
            for case in cases_of(section, value):
                yield Found(file, section, case)


def cases_of(section: str, value: Any) -> Iterator[Case]:
    """All cases of one section."""
    if section in EXPLANATIONS:
        yield skipped("(all)", SkipCase(EXPLANATIONS[section]))
        return
    known = [shape for shape in SHAPES if shape.section == section]
    whole = next((shape for shape in known if not shape.fields), None)
    if whole is not None:
        yield from _guarded(whole, "(all)", value, value)
        return
    if not isinstance(value, list) or not value:
        yield skipped("(all)", SkipCase(f"no machine reads a section of this name that is {_shape(value)}"))
        return
    for number, entry in enumerate(value):
        name = name_of(entry, number)
        shape = next((shape for shape in known if shape.fits(entry)), None)
        if shape is None and isinstance(entry, dict) and OPERATORS in entry:
            yield skipped(
                name, SkipCase("of an operator (window, join, keyed function, SQL): not covered yet")
            )
        elif shape is not None:
            yield from _guarded(shape, name, entry, value)
        elif section in PROSE:
            yield skipped(name, in_words(section, name))
        else:
            what = "an entry of this shape" if known else "a section of this name"
            yield skipped(name, SkipCase(f"no machine reads {what}: {_shape(entry)}"))


def _shape(value: Any) -> str:
    """The fields that an entry has."""
    if isinstance(value, dict):
        return f"{{{', '.join(sorted(value))}}}"
    return "an empty list" if value == [] else f"a {type(value).__name__}"


def _guarded(shape: Shape, name: str, value: Any, section: Any) -> Iterator[Case]:
    """A case that cannot even be read has failed; it does not end the run."""
    try:
        yield from shape.read(name, value, section)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        yield Case(name, _raising(f"cannot be read as a case: {type(error).__name__}: {error}"))


def _raising(text: str) -> Callable[[], Comparison]:
    return lambda: Comparison("a case", text)
