"""Which slots a request may have, which worker to start for it, and the messages about that. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Final, Generic, TypeVar

from unistream.core.contract import SlotRequest
from unistream.model.resources import ResourceProfile

SLOT_MEMORY_MB_MIN: Final = 128  # of a worker that is made to measure: its network memory alone is 64 MiB

S = TypeVar("S")


def serves(slot: ResourceProfile, wanted: ResourceProfile, *, strict: bool) -> bool:
    """A slot of profile `slot` is enough for `wanted`; any slot serves an unknown profile.

    `strict`: the slot must specify every part that is wanted. Otherwise an unspecified part of the slot is no
    limit: workers that are started by hand need not specify what they have.
    """
    if not wanted.fits_in(slot):
        return False
    specified = (slot.cpu_cores or not wanted.cpu_cores) and (slot.memory_mb or not wanted.memory_mb)
    return not strict or bool(specified)


def profile_for(wanted: ResourceProfile, default: ResourceProfile) -> ResourceProfile:
    """The slot profile of a worker that is started for `wanted`: at least the default in every part."""
    memory_mb = max(wanted.memory_mb, default.memory_mb)
    return ResourceProfile(
        cpu_cores=max(wanted.cpu_cores, default.cpu_cores),
        memory_mb=max(memory_mb, SLOT_MEMORY_MB_MIN) if memory_mb else 0,
    )


def certain_profile(slot: ResourceProfile, served: ResourceProfile) -> ResourceProfile:
    """The profile of a slot that serves `served`: at least that, also in parts that the slot leaves
    unspecified."""
    return ResourceProfile(
        cpu_cores=max(slot.cpu_cores, served.cpu_cores), memory_mb=max(slot.memory_mb, served.memory_mb)
    )


class FreeSlots(Generic[S]):
    """Slots to be granted, each at most once; among equal ones the first added.

    `exact`: only a slot of the very profile that is wanted. Otherwise the smallest that is enough, so that
    the big ones stay for those that need them.
    """

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self._slots: defaultdict[ResourceProfile, deque[S]] = defaultdict(deque)
        self._sorted: list[ResourceProfile] = []

    def add(self, profile: ResourceProfile, slot: S, count: int = 1) -> None:
        if count > 0:
            if profile not in self._slots:
                self._sorted = sorted([*self._sorted, profile], key=size_of)
            self._slots[profile].extend([slot] * count)

    def take(self, wanted: ResourceProfile) -> S | None:
        """None: there is no such slot."""
        for profile in self._sorted:
            is_enough = profile == wanted if self._exact else serves(profile, wanted, strict=False)
            if is_enough and self._slots[profile]:
                return self._slots[profile].popleft()
        return None


def size_of(profile: ResourceProfile) -> tuple[float, float]:
    """Smallest first; an unspecified part could be of any size, and comes last."""
    return (profile.memory_mb or math.inf, profile.cpu_cores or math.inf)


# --- texts ----------------------------------------------------------------------------------------


def describe(profile: ResourceProfile) -> str:
    """A profile in words.

    >>> describe(ResourceProfile(cpu_cores=2, memory_mb=512))
    '2 cpu cores and 512 MiB of memory'
    """
    parts = []
    if profile.cpu_cores:
        parts.append(f"{profile.cpu_cores:g} cpu core{'' if profile.cpu_cores == 1 else 's'}")
    if profile.memory_mb:
        parts.append(f"{profile.memory_mb} MiB of memory")
    return " and ".join(parts) or "no profile"


def describe_requests(requests: Iterable[SlotRequest]) -> str:
    """How many of which group and profile, e.g. ``2 slots of slot sharing group 'big' with 512 MiB of
    memory each, 1 slot of slot sharing group 'default'``."""
    counted = Counter((request.group, request.profile) for request in requests)
    return ", ".join(_described(count, group, profile) for (group, profile), count in counted.items())


def _described(count: int, group: str, profile: ResourceProfile) -> str:
    text = f"{count} slot{'' if count == 1 else 's'} of slot sharing group {group!r}"
    if profile.is_unknown:
        return text
    return f"{text} with {describe(profile)}{'' if count == 1 else ' each'}"


def missing_slots_text(
    missing: Sequence[SlotRequest], wanted: int, timeout_ms: int, not_started: str = ""
) -> str:
    """The failure after `slot.request.timeout`: how many slots of `wanted` are missing, of which profile, and
    what to do. `not_started`: why a worker that was started for them failed."""
    text = (
        f"{len(missing)} of {wanted} slots are missing after {timeout_ms} ms (slot.request.timeout): "
        f"{describe_requests(missing)}; "
    )
    if not_started:
        return f"{text}a worker was started for them but failed: {not_started}"
    return (
        f"{text}start more workers, give them more slots (taskmanager.numberOfTaskSlots) or lower the "
        "parallelism"
    )


def too_big_text(requests: Iterable[SlotRequest], largest: ResourceProfile) -> str:
    return (
        f"no worker can serve {describe_requests(requests)}: a worker of this cluster has at most "
        f"{describe(largest)}; lower the resources of that slot sharing group"
    )


def none_fits_text(requests: Iterable[SlotRequest], offers: Iterable[ResourceProfile]) -> str:
    """`offers`: the profile of a slot of each registered worker."""
    counted = Counter(offers)
    there = ", ".join(
        f"{describe(profile)} ({count} worker{'' if count == 1 else 's'})"
        for profile, count in counted.items()
    )
    return (
        f"no registered worker can serve {describe_requests(requests)}: their slots have {there}; start a "
        "bigger worker or lower the resources of that slot sharing group"
    )
