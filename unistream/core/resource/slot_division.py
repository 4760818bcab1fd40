"""How the slots of an adaptive job are divided over its slot sharing groups. Pure.

What always has one width (a vertex, or all vertices that forward edges join) is a unit. Every unit begins
with one slot in each of its groups; then, round by round, each one becomes wider by one if its groups have
the slots for that or can get them, until it is as wide as it may be. So groups get about equally many, and
what one cannot use goes to the others, as Flink's adaptive scheduler divides (FLIP-160). In the last round,
when there are too few for all, units of several groups come first, then the widest, then the first ones.

Where Flink takes all slots to be alike, here one may be too small for some groups. A group that finds only
slots that others have been given takes one if those can have another one instead, over as many hands as it
takes (an augmenting path, Berge 1957). So no slot stays idle that could make a unit wider, and which group
got which slot first does not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class SlotKind(NamedTuple):
    """Slots that are alike.

    Attributes:
        group: The slot sharing group that has them now.
        serves: All groups that they are big enough for, `group` too.
    """

    group: str
    serves: frozenset[str]


class Division:
    """Slots that are given to groups, one by one.

    Attributes:
        given: How many slots of a kind a group has.
    """

    def __init__(self, supply: Mapping[SlotKind, int]) -> None:
        self._idle = {kind: supply[kind] for kind in sorted(supply, key=lambda kind: len(kind.serves))}
        self.given: Counter[tuple[SlotKind, str]] = Counter()

    def keep(self, kind: SlotKind) -> None:
        """The group that has such a slot goes on with it."""
        assert self._idle[kind] > 0, f"{kind} was given away"
        self._take(kind, kind.group)

    def give(self, group: str) -> bool:
        """One more slot for `group`; False: there is none that would do, however they are handed around."""
        found: dict[str, tuple[SlotKind, str] | None] = {group: None}  # who gives up what for whom
        queue = [group]
        for taker in queue:
            for kind, idle in self._idle.items():
                if taker not in kind.serves:
                    continue
                if idle:
                    self._hand_over(kind, taker, found)
                    return True
                holders = [other for other in sorted(kind.serves) if self.given[kind, other]]
                for holder in holders:
                    if holder not in found:
                        found[holder] = (kind, taker)
                        queue.append(holder)
        return False

    def _hand_over(
        self, kind: SlotKind, taker: str, found: Mapping[str, tuple[SlotKind, str] | None]
    ) -> None:
        self._take(kind, taker)
        while (step := found[taker]) is not None:
            passed, receiver = step
            self.given[passed, taker] -= 1
            self.given[passed, receiver] += 1
            taker = receiver

    def _take(self, kind: SlotKind, group: str) -> None:
        self._idle[kind] -= 1
        self.given[kind, group] += 1

    def give_all(self, groups: Sequence[str]) -> bool:
        """One more for each of `groups`, or nothing is changed."""
        if not groups:
            return True
        idle, given = dict(self._idle), self.given.copy()
        if all(self.give(group) for group in groups):
            return True
        self._idle, self.given = idle, given
        return False


class Unit(NamedTuple):
    """What always has one width: that many slots of each of its slot sharing groups, at most `limit`."""

    groups: frozenset[str]
    limit: int


def without_slot(groups: Iterable[str], supply: Mapping[SlotKind, int]) -> list[str]:
    """Groups that cannot have a single slot when the others have one each."""
    division = Division(supply)
    return [group for group in groups if not division.give(group)]


def divide(units: Sequence[Unit], supply: Mapping[SlotKind, int]) -> list[int] | None:
    """The width of each unit; None: some group cannot have a single slot.

    Units share the slots of a group: it needs as many as its widest unit.

    >>> anywhere = frozenset({"g1", "g2", "g3"})
    >>> units = [Unit(frozenset({"g1"}), 4), Unit(frozenset({"g2"}), 1), Unit(frozenset({"g3"}), 4)]
    >>> divide(units, {SlotKind("g1", anywhere): 6})
    [3, 1, 2]
    """
    division = Division(supply)
    slots = dict.fromkeys((group for unit in units for group in sorted(unit.groups)), 1)
    if not all(division.give(group) for group in slots):
        return None
    widths = [1] * len(units)
    order = sorted(range(len(units)), key=lambda place: (-len(units[place].groups), -units[place].limit))
    went_on = True
    while went_on:
        went_on = False
        for place in order:
            unit, width = units[place], widths[place]
            lacking = [group for group in sorted(unit.groups) if slots[group] == width]
            if width < unit.limit and division.give_all(lacking):
                slots |= dict.fromkeys(lacking, width + 1)
                widths[place] = width + 1
                went_on = True
    return widths
