"""Which workers a host remembers: all that live, and not all that ever lived."""

from __future__ import annotations

import pytest

from unistream.base.errors import ConfigError, Unreachable
from unistream.base.ids import TaskManagerId
from unistream.host.roster import ENDED_MAX, IDS_MAX, Roster


def ignore(task_manager: TaskManagerId, reason: str, host: str = "", hopeless: bool = False, /) -> None:
    """Nobody is to be informed."""


def test_workers_that_have_ended_are_forgotten_and_their_ids_are_not() -> None:
    roster: Roster[object] = Roster(ignore)
    living = roster.add(TaskManagerId("living"), object)
    for number in range(ENDED_MAX + 50):
        roster.add(TaskManagerId(f"tm-{number}"), object)
        roster.ended(TaskManagerId(f"tm-{number}"), "killed")
    assert len(roster.all()) == ENDED_MAX + 1
    assert roster.get(TaskManagerId("living")) is living
    assert roster.get(TaskManagerId("tm-0")) is None
    assert roster.get(TaskManagerId(f"tm-{ENDED_MAX + 49}")) is not None
    with pytest.raises(ConfigError, match="was used before"):
        roster.add(TaskManagerId("tm-0"), object)


def test_ids_are_remembered_up_to_a_limit() -> None:
    roster: Roster[object] = Roster(ignore)
    for number in range(ENDED_MAX + IDS_MAX + 1):
        roster.add(TaskManagerId(f"tm-{number}"), object)
        roster.ended(TaskManagerId(f"tm-{number}"), "killed")
    roster.add(TaskManagerId("tm-0"), object)
    with pytest.raises(ConfigError, match="was used before"):
        roster.add(TaskManagerId("tm-1"), object)


def test_the_end_of_an_unknown_worker_changes_nothing() -> None:
    roster: Roster[object] = Roster(ignore)
    roster.ended(TaskManagerId("tm"), "killed")
    assert roster.all() == []


def test_the_end_of_a_worker_is_reported() -> None:
    reported: list[tuple[object, ...]] = []
    roster: Roster[object] = Roster(lambda *end: reported.append(end))
    roster.add(TaskManagerId("tm"), object)
    roster.ended(TaskManagerId("tm"), "killed", "a host", True)
    assert reported == [("tm", "killed", "a host", True)]


def test_a_closed_one_takes_nothing() -> None:
    roster: Roster[object] = Roster(ignore)
    assert roster.close()
    assert not roster.close()
    with pytest.raises(Unreachable, match="closed"):
        roster.add(TaskManagerId("tm"), object)
