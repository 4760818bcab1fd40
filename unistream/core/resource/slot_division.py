"""How the slots of an adaptive job are divided among its slot sharing groups. Pure.

A unit is what always has one width: a vertex, or all vertices that forward edges join. Every unit begins
with one slot in each of its groups; then, round by round, each one becomes wider by one if its groups have
or can get the slots, up to its limit. So groups get about equally many, and the others get what one cannot
use, as in Flink's adaptive scheduler (FLIP-160). In the last round, when there are too few for all, units of
several groups come first, then the widest, then the first ones.

In Flink all slots are alike; here one may be too small for some groups. A group that finds only assigned
slots takes one if its owner can have another one instead, over any number of steps (an augmenting path,
Berge 1957). So no slot stays idle that could make a unit wider, whatever the order of assignment.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

Slice = tuple[str, int]
"""Slot sharing group and index."""


class SlotKind(NamedTuple):
    """Slots that are alike.

    Attributes:
        group: The slot sharing group that has them now.
        serves: All groups that they are big enough for, including `group`.
    """

    group: str
    serves: frozenset[str]


class Division:
    """Assigns slots to groups, one by one.

    Attributes:
        given: How many slots of a kind a group has.
    """

    def __init__(self, supply: Mapping[SlotKind, int]) -> None:
        self._idle = {kind: supply[kind] for kind in sorted(supply, key=lambda kind: len(kind.serves))}
        self.given: Counter[tuple[SlotKind, str]] = Counter()

    def keep(self, kind: SlotKind) -> None:
        """The group that has such a slot keeps it."""
        assert self._idle[kind] > 0, f"{kind} is assigned already"
        self._take(kind, kind.group)

    def give(self, group: str) -> bool:
        """One more slot for `group`; False: none is possible, however the others are reassigned."""
        found: dict[str, tuple[SlotKind, str] | None] = {
            group: None
        }  # owner -> what it passes to which group
        queue = [group]
        for taker in queue:
            for kind, idle in self._idle.items():
                if taker not in kind.serves:
                    continue
                if idle:
                    self._pass_on(kind, taker, found)
                    return True
                holders = [other for other in sorted(kind.serves) if self.given[kind, other]]
                for holder in holders:
                    if holder not in found:
                        found[holder] = (kind, taker)
                        queue.append(holder)
        return False

    def _pass_on(self, kind: SlotKind, taker: str, found: Mapping[str, tuple[SlotKind, str] | None]) -> None:
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
        """One more for each of `groups`, or no change."""
        idle, given = dict(self._idle), self.given.copy()
        if all(self.give(group) for group in groups):
            return True
        self._idle, self.given = idle, given
        return False


class Unit(NamedTuple):
    """Needs as many slots of each of its slot sharing groups as it is wide; `limit`: its maximum width."""

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
    grew = True
    while grew:
        grew = False
        for place in order:
            unit, width = units[place], widths[place]
            lacking = [group for group in sorted(unit.groups) if slots[group] == width]
            if width < unit.limit and division.give_all(lacking):
                slots |= dict.fromkeys(lacking, width + 1)
                widths[place] = width + 1
                grew = True
    return widths


# --- which slice gets which lease -----------------------------------------------------------------


def dealt(kinds: Mapping[Slice, SlotKind], shares: Mapping[str, int]) -> dict[Slice, Slice]:
    """The slice whose lease each slice gets, when a job that is to start redistributes its leases. Leases
    stay where they are if possible, so that state is local.

    Args:
        kinds: The kind of the lease of each slice; its group is that of the slice.
        shares: How many leases each group gets, in its first slices; at most what `divide` allows.

    Returns:
        Every lease once: unneeded leases stay in their groups, in later slices.
    """
    division = Division(Counter(kinds.values()))
    for kind in _first_of_each_group(kinds, shares):
        division.keep(kind)
    for group, share in shares.items():
        for _ in range(share - sum(division.given[kind, group] for kind in set(kinds.values()))):
            served = division.give(group)
            assert served, f"{group!r} cannot have {share} of these slots"
    return _placed(_owners(kinds, division), shares)


def _first_of_each_group(kinds: Mapping[Slice, SlotKind], shares: Mapping[str, int]) -> Iterator[SlotKind]:
    """Leases that stay in their group: as many as its share."""
    seen: Counter[str] = Counter()
    for piece in sorted(kinds):
        seen[piece[0]] += 1
        if seen[piece[0]] <= shares.get(piece[0], 0):
            yield kinds[piece]


def _owners(kinds: Mapping[Slice, SlotKind], division: Division) -> dict[Slice, tuple[str, bool]]:
    """The new group of each lease, and whether it is needed there."""
    alike: defaultdict[SlotKind, list[Slice]] = defaultdict(list)
    for piece in sorted(kinds):
        alike[kinds[piece]].append(piece)
    owners: dict[Slice, tuple[str, bool]] = {}
    for kind, pieces in alike.items():
        left = iter(pieces)
        for group in (kind.group, *sorted(kind.serves - {kind.group})):
            for _ in range(division.given[kind, group]):
                owners[next(left)] = (group, True)
        owners |= dict.fromkeys(left, (kind.group, False))
    return owners


def _placed(owners: Mapping[Slice, tuple[str, bool]], shares: Mapping[str, int]) -> dict[Slice, Slice]:
    """Target -> source. Leases that may stay do; the others fill the gaps, in order."""
    places: dict[Slice, Slice] = {}
    moving: list[Slice] = []
    for source, (group, needed) in owners.items():
        if source[0] == group and needed == (source[1] < shares.get(group, 0)):
            places[source] = source
        else:
            moving.append(source)
    for source in sorted(moving):
        group, needed = owners[source]
        index = 0 if needed else shares.get(group, 0)
        while (group, index) in places:
            index += 1
        places[group, index] = source
    return places
