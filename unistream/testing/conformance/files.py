"""Finds the cases in files and folders, by the shape of what they hold; names mean nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from unistream.base.errors import NotFound
from unistream.testing.conformance import (
    checkpoint_plan,
    failover,
    key_groups,
    lifecycle,
    regions,
    scheduling,
    state_redistribution,
    two_phase_commit,
    watermarks,
)
from unistream.testing.conformance.case import Case, Comparison, Shape, SkipCase, name_of

MODULES: Final = (
    regions,
    scheduling,
    failover,
    key_groups,
    checkpoint_plan,
    state_redistribution,
    watermarks,
    lifecycle,
    two_phase_commit,
)
SHAPES: Final[tuple[Shape, ...]] = tuple(shape for module in MODULES for shape in module.SHAPES)
PROSE: Final[dict[str, str]] = {
    section: reason for module in MODULES for section, reason in module.PROSE.items()
}
DESCRIPTION: Final = "about"  # of the file itself; neither a case nor skipped
RULES: Final = frozenset({"rules", "invariants", "flinkTests"})


@dataclass(frozen=True, slots=True)
class Found:
    """A case and where it lies."""

    file: Path
    section: str
    case: Case

    @property
    def title(self) -> str:
        return f"{self.file.name} {self.section}: {self.case.name}"


def find_cases(paths: Iterable[Path]) -> Iterator[Found]:
    """All cases of these files, and of all files below these folders; what cannot be run is a skipped case.

    Raises:
        NotFound: there is no such file or folder.
    """
    for path in paths:
        if not path.exists():
            raise NotFound(f"{path}: no such file or folder")
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                yield from _in_file(file)


def _in_file(file: Path) -> Iterator[Found]:
    if file.suffix != ".json":
        yield Found(file, "-", _skipped("(the file)", "a text, not cases: it has no suffix .json"))
        return
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        yield Found(file, "-", Case("(the file)", _raising(f"unreadable: {error}")))
        return
    if not isinstance(content, dict):
        yield Found(file, "-", _skipped("(the file)", "no sections: the file is not a JSON object"))
        return
    for section, value in content.items():
        if section != DESCRIPTION:
            for case in _in_section(section, value):
                yield Found(file, section, case)


def _in_section(section: str, value: Any) -> Iterator[Case]:
    if section in RULES:
        yield _skipped("(all)", "rules in words: the cases show them")
        return
    known = [shape for shape in SHAPES if shape.section == section]
    whole = next((shape for shape in known if not shape.fields), None)
    if whole is not None:
        yield from _guarded(whole, "(all)", value)
        return
    if not isinstance(value, list) or not value:
        yield _skipped("(all)", PROSE.get(section, "no machine reads a section of this name"))
        return
    for number, entry in enumerate(value):
        name = name_of(entry, number)
        shape = next((shape for shape in known if shape.fits(entry)), None)
        if shape is not None:
            yield from _guarded(shape, name, entry)
        elif section in PROSE:
            yield _skipped(name, PROSE[section])
        else:
            why = "entry of another shape" if known else "section of this name"
            yield _skipped(name, f"no machine reads an {why}" if known else f"no machine reads a {why}")


def _guarded(shape: Shape, name: str, value: Any) -> Iterator[Case]:
    """A case that cannot even be read has failed; it does not end the run."""
    try:
        yield from shape.read(name, value)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        yield Case(name, _raising(f"cannot be read as a case: {type(error).__name__}: {error}"))


def _skipped(name: str, reason: str) -> Case:
    def run() -> Comparison:
        raise SkipCase(reason)

    return Case(name, run)


def _raising(text: str) -> Callable[[], Comparison]:
    return lambda: Comparison("a case", text)
