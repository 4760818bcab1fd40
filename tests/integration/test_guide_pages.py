"""Every page of the guide is typed as it stands, in an empty folder with an empty home.

The cheap ones at each commit, the others at night; the tour and a connector's package have their own tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import dagster as dg
import pytest
from deltalake import write_deltalake

from tests.guide_page import GUIDE, Reader, Step, reader, steps_of
from unistream.connector.kafka.format.decode import DEAD_LETTER_SCHEMA
from unistream.dagster.run.translator import lineage_of

ELSEWHERE: Final = {"tour"}
SESSION: Final = {"dagster": "definitions"}  # the page says that it is a module
USUAL_PORTS: Final = ("unistream stack up", "unistream cluster start")
Names = dict[str, Any]


def pages() -> Iterator[Any]:
    for path in sorted(GUIDE.glob("*.md")):
        steps = steps_of(path.read_text(encoding="utf-8"))
        if steps and path.stem not in ELSEWHERE:
            yield pytest.param(path.stem, steps, id=path.stem, marks=network_of(steps))
        if path.stem == "datastream":
            yield pytest.param(
                path.stem, steps[:-1], id=f"{path.stem} until it runs", marks=network_of(steps[:-1])
            )


def network_of(steps: list[Step]) -> list[pytest.MarkDecorator]:
    wants_usual_ports = any(step.text.startswith(USUAL_PORTS) for step in steps)
    return [pytest.mark.own_network] if wants_usual_ports else []


def _dagster(names: Names, _: Reader) -> None:
    written = [value for value in names.values() if isinstance(value, dg.Definitions)]
    assert len(written) >= 4
    for definitions in written:
        dg.Definitions.validate_loadable(definitions)


def _dead_letters(names: Names, typist: Reader) -> None:
    write_deltalake(str(typist.folder / "lake" / "flights-dead"), DEAD_LETTER_SCHEMA.empty_table())
    assert [sink.uid for sink in lineage_of(names["publish_again"]).sinks] == ["topic"]


def _logs(names: Names, _: Reader) -> None:
    assert [(one.level, one.message) for one in names["lines"]] == [("WARNING", "amount 'much' is no number")]


BESIDES: Final[dict[str, Callable[[Names, Reader], None]]] = {
    "dagster": _dagster,
    "dead-letters": _dead_letters,
    "logs": _logs,
}
"""What else is true behind the last step, which the page says without a step."""


@pytest.mark.parametrize(("page", "steps"), list(pages()))
def test_a_page_is_typed(page: str, steps: list[Step], tmp_path: Path) -> None:
    with reader(tmp_path, SESSION.get(page, "__main__")) as typist:
        names = typist.assert_as_said(steps)
        if page in BESIDES:
            BESIDES[page](names, typist)
