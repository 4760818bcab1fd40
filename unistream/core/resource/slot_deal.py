"""Which slice gets which lease when a job that is to start anew deals out the leases that it has. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from unistream.core.resource.slot_division import Division, SlotKind

Slice = tuple[str, int]
"""Slot sharing group and index."""


def dealt(kinds: Mapping[Slice, SlotKind], shares: Mapping[str, int]) -> dict[Slice, Slice]:
    """The slice whose lease each slice gets. What may stay where it is stays, so that state lies near.

    Args:
        kinds: What the lease of each slice is; its group is that of the slice.
        shares: How many leases each group is to have, in its first slices; what `divide` allows, or fewer.

    Returns:
        Every lease once: leases that are not needed stay in their groups, in later slices.
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
    """Who has each lease from now on, and whether it is needed there."""
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
    """Target -> source. Those that are where they may be stay; the others fill the gaps, in order."""
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
