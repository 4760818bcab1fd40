"""The slots that one job requests and holds. Pure; one `SlotPool` per job.

Slot sharing: slice i of a group holds subtask i of every vertex of the group, so a job needs, for each group,
at most as many slots as its widest vertex has subtasks. Slots are requested when a region is scheduled.
Request ids are never used again, so that a late or repeated grant cannot be mistaken for another. A lease
whose slice has nothing left to run is passed to a waiting slice that its slot is big enough for, or released
when it was idle for `slot.idle.timeout`.

An adaptive job redistributes all its leases before it starts, also to other groups (`supply`, `deal`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from unistream.base.ids import AllocationId, SubtaskId, TaskManagerId
from unistream.core.contract import SlotLease, SlotRequest
from unistream.core.resource.slot_division import Slice, SlotKind, dealt
from unistream.core.resource.slot_matching import serves, size_of
from unistream.model.graph import JobGraph
from unistream.model.plan import TaskManagerLocation
from unistream.model.resources import ANY_PROFILE, ResourceProfile


class SlotPool:
    """The requests that are open and the leases that are held, by slice."""

    def __init__(self, graph: JobGraph, idle_timeout_ms: int) -> None:
        self._idle_timeout_ms = idle_timeout_ms
        self._profiles = graph.profiles
        self._groups = {vertex.id: vertex.slot_sharing_group for vertex in graph.vertices}
        self._counts: dict[Slice, int] = {}  # how often it was requested
        self._open: dict[Slice, SlotRequest] = {}
        self._leases: dict[Slice, SlotLease] = {}
        self._lost: dict[Slice, str] = {}  # the request whose lease was lost with its worker
        self._idle_since_ms: dict[Slice, int] = {}
        self._leaving: dict[AllocationId, SlotLease] = {}  # of workers that are drained
        self._distrusted: set[AllocationId] = set()
        self._served: dict[tuple[ResourceProfile, bool], frozenset[str]] = {}  # groups a slot is enough for

    def slice_of(self, subtask: SubtaskId) -> Slice:
        return (self._groups[subtask.vertex], subtask.index)

    def require(self, subtasks: Iterable[SubtaskId]) -> tuple[SlotRequest, ...]:
        """Requests for the slices of `subtasks` that have neither a lease nor an open request."""
        requests = []
        for piece in dict.fromkeys(self.slice_of(subtask) for subtask in subtasks):
            if piece not in self._leases and piece not in self._open:
                request = replace(self._request(piece), replaces=self._lost.pop(piece, ""))
                self._open[piece] = request
                requests.append(request)
        return tuple(requests)

    def _request(self, piece: Slice) -> SlotRequest:
        self._counts[piece] = self._counts.get(piece, 0) + 1
        return self.describe(piece)

    def describe(self, piece: Slice) -> SlotRequest:
        """The latest request for that slice."""
        group, index = piece
        count = self._counts.get(piece, 1)
        return SlotRequest(
            key=f"{group}/{index}" if count == 1 else f"{group}/{index}:{count}",
            group=group,
            profile=self._profiles.get(group, ANY_PROFILE),
        )

    def refused(self, requests: tuple[str, ...]) -> frozenset[Slice]:
        """Closes these open requests; returns their slices."""
        pieces = frozenset(piece for piece, request in self._open.items() if request.key in requests)
        for piece in pieces:
            del self._open[piece]
        return pieces

    def missing(self, subtasks: Iterable[SubtaskId]) -> tuple[Slice, ...]:
        """Slices of `subtasks` without a lease, in their order."""
        pieces = dict.fromkeys(self.slice_of(subtask) for subtask in subtasks)
        return tuple(piece for piece in pieces if piece not in self._leases)

    def withdraw(self, subtasks: Iterable[SubtaskId]) -> tuple[str, ...]:
        """Closes the open requests of slices that `subtasks` do not need; returns them."""
        needed = {self.slice_of(subtask) for subtask in subtasks}
        unneeded = {piece: request for piece, request in self._open.items() if piece not in needed}
        for piece in unneeded:
            del self._open[piece]
        return tuple(request.key for request in unneeded.values())

    @property
    def open(self) -> tuple[SlotRequest, ...]:
        return tuple(self._open.values())

    def supply(self) -> Counter[SlotKind]:
        """The leases, by the groups that may have them."""
        return Counter(self._kind(piece, lease) for piece, lease in self._leases.items())

    def _kind(self, piece: Slice, lease: SlotLease) -> SlotKind:
        key = (lease.profile, lease.strict)
        served = self._served.get(key)
        if served is None:
            served = self._served[key] = frozenset(
                group for group in self._groups.values() if self._is_enough(lease, group)
            )
        return SlotKind(piece[0], served | {piece[0]})

    def _is_enough(self, lease: SlotLease, group: str) -> bool:
        return serves(lease.profile, self._profiles.get(group, ANY_PROFILE), strict=lease.strict)

    def deal(self, shares: Mapping[str, int]) -> tuple[str, ...]:
        """Gives the first slices of every group a lease, as many as its share; only while nothing runs, and
        only shares that `supply` allows. Returns requests that are not needed any more; others may be needed
        instead (see `require`)."""
        kinds = {piece: self._kind(piece, lease) for piece, lease in self._leases.items()}
        places = dealt(kinds, shares)
        bare = [piece for piece in self._leases if piece not in places]
        self._leases = {piece: self._leases[source] for piece, source in places.items()}
        cancelled = []
        for piece in [piece for piece in self._open if piece in self._leases]:
            request = self._open.pop(piece)
            alike = (p for p in bare if self._profiles.get(p[0], ANY_PROFILE) == request.profile)
            other = next(alike, None)
            if other is None:
                cancelled.append(request.key)
            else:
                bare.remove(other)
                self._open[other] = request
        return tuple(cancelled)

    @property
    def room_mb(self) -> dict[str, int]:
        """Slot sharing group -> MiB of memory of its biggest slot; 0: one of them does not say."""
        found: dict[str, list[int]] = {}
        for (group, _), lease in self._leases.items():
            found.setdefault(group, []).append(lease.profile.memory_mb)
        return {group: max(sizes) if all(sizes) else 0 for group, sizes in found.items()}

    @property
    def by_slice(self) -> dict[Slice, SlotLease]:
        """A copy of the leases."""
        return dict(self._leases)

    @property
    def leases(self) -> tuple[SlotLease, ...]:
        return tuple(self._leases.values())

    def grant(self, leases: Iterable[SlotLease]) -> tuple[str, ...]:
        """Adds leases of open requests; returns the requests whose lease is not needed (any more)."""
        wanted = {request.key: piece for piece, request in self._open.items()}
        held = {lease.request: lease for lease in (*self._leases.values(), *self._leaving.values())}
        unwanted = []
        for lease in leases:
            piece = wanted.get(lease.request)
            if piece is not None:
                self._leases[piece] = lease
                del self._open[piece], wanted[lease.request]
                held[lease.request] = lease
            elif held.get(lease.request) != lease:
                unwanted.append(lease.request)
        return tuple(unwanted)

    def distrust(self, subtask: SubtaskId) -> None:
        """Its worker refused a deployment: it may have lost the lease."""
        lease = self._leases.get(self.slice_of(subtask))
        if lease is not None:
            self._distrusted.add(lease.allocation)

    def drop_distrusted(self, busy: frozenset[Slice]) -> tuple[str, ...]:
        """Removes distrusted leases, unless something runs there; returns their requests."""
        void = sorted(piece for piece, lease in self._leases.items() if lease.allocation in self._distrusted)
        self._distrusted = {self._leases[piece].allocation for piece in void if piece in busy}
        return tuple(self._leases.pop(piece).request for piece in void if piece not in busy)

    def lost(self, task_manager: TaskManagerId) -> None:
        """All leases of that worker are void."""
        lost = {p: lease for p, lease in self._leases.items() if lease.task_manager == task_manager}
        self._lost |= {piece: lease.request for piece, lease in lost.items()}
        self._leases = {p: lease for p, lease in self._leases.items() if p not in lost}
        for allocation in [a for a, one in self._leaving.items() if one.task_manager == task_manager]:
            del self._leaving[allocation]

    def leave(self, task_manager: TaskManagerId) -> None:
        """That worker is drained: nothing new starts in its leases, which are kept for what runs there."""
        leaving = {p: lease for p, lease in self._leases.items() if lease.task_manager == task_manager}
        self._lost |= {piece: lease.request for piece, lease in leaving.items()}
        self._leaving |= {lease.allocation: lease for lease in leaving.values()}
        self._leases = {p: lease for p, lease in self._leases.items() if p not in leaving}

    @property
    def is_leaving(self) -> bool:
        """There are leases of workers that are drained."""
        return bool(self._leaving)

    def leaves(self, place: TaskManagerLocation | None) -> bool:
        """What runs there is to move."""
        return place is not None and place.allocation in self._leaving

    def left(self, used: frozenset[AllocationId], kept: frozenset[TaskManagerId]) -> tuple[str, ...]:
        """Removes leases of workers that are drained, except those that are `used`, or on a worker that is
        `kept`; returns their requests."""
        void = [a for a, one in self._leaving.items() if a not in used and one.task_manager not in kept]
        return tuple(self._leaving.pop(allocation).request for allocation in void)

    def is_on(self, task_manager: TaskManagerId) -> bool:
        leases = (*self._leases.values(), *self._leaving.values())
        return any(lease.task_manager == task_manager for lease in leases)

    def slices_on(self, task_managers: frozenset[TaskManagerId]) -> frozenset[Slice]:
        return frozenset(p for p, lease in self._leases.items() if lease.task_manager in task_managers)

    def share(self, busy: frozenset[Slice]) -> tuple[str, ...]:
        """Passes leases of slices that are not `busy` to waiting slices that they are big enough for; returns
        requests that are not needed any more."""
        spare = [piece for piece in self._leases if piece not in busy]
        cancelled = []
        for piece, source in self._passed_on(spare, self._open):
            self._leases[piece] = self._leases.pop(source)
            cancelled.append(self._open.pop(piece).key)
        return tuple(cancelled)

    def can_pass_on(self, ending: Iterable[Slice], missing: Sequence[Slice]) -> bool:
        """The leases of the slices `ending` are enough for all `missing`."""
        leased = [piece for piece in ending if piece in self._leases]
        return len(self._passed_on(leased, missing)) == len(missing)

    def _passed_on(self, sources: Iterable[Slice], waiting: Iterable[Slice]) -> list[tuple[Slice, Slice]]:
        """(waiting slice, source of its lease): the smallest that is enough, each at most once."""
        left = sorted(sources, key=lambda piece: size_of(self._leases[piece].profile))
        found = []
        for piece in waiting:
            source = next((s for s in left if self._is_enough(self._leases[s], piece[0])), None)
            if source is not None:
                left.remove(source)
                found.append((piece, source))
        return found

    def give_up(self, pieces: Iterable[Slice]) -> tuple[str, ...]:
        """Removes the leases of these slices; returns their requests."""
        return tuple(self._leases.pop(piece).request for piece in pieces if piece in self._leases)

    def release_idle(self, busy: frozenset[Slice], now_ms: int) -> tuple[tuple[str, ...], int | None]:
        """Removes leases that were idle for the whole timeout; returns their requests, and in how many ms to
        check again (None: nothing is idle)."""
        idle = [piece for piece in self._leases if piece not in busy]
        self._idle_since_ms = {piece: self._idle_since_ms.get(piece, now_ms) for piece in idle}
        due = [p for p in idle if now_ms - self._idle_since_ms[p] >= self._idle_timeout_ms]
        released = tuple(self._leases.pop(piece).request for piece in due)
        for piece in due:
            del self._idle_since_ms[piece]
        if not self._idle_since_ms:
            return released, None
        return released, min(self._idle_since_ms.values()) + self._idle_timeout_ms - now_ms

    def used(self, subtasks: Iterable[SubtaskId]) -> None:
        """Their slots are not idle any more."""
        for subtask in subtasks:
            self._idle_since_ms.pop(self.slice_of(subtask), None)

    def place(self, subtask: SubtaskId) -> TaskManagerLocation:
        """Where `subtask` is to run; its slot must not be missing."""
        lease = self._leases[self.slice_of(subtask)]
        return TaskManagerLocation(lease.task_manager, lease.address, lease.allocation)

    def holds(self, subtask: SubtaskId, place: TaskManagerLocation | None) -> bool:
        """The job has the lease of `subtask`, and `place` is where that is; or that of a worker that is
        drained, on which it runs."""
        if self.leaves(place):
            return True
        lease = self._leases.get(self.slice_of(subtask))
        if lease is None or place is None:
            return False
        return lease.task_manager == place.task_manager and lease.address == place.address

    def allocation(self, subtask: SubtaskId) -> AllocationId:
        """The lease that it runs in; its slot must not be missing."""
        return self._leases[self.slice_of(subtask)].allocation

    def validate(self) -> None:
        """I14: a lease is held once, and nothing is both leased and open."""
        allocations = [lease.allocation for lease in self._leases.values()] + list(self._leaving)
        assert len(allocations) == len(set(allocations)), "a slot was leased twice"
        assert not self._leases.keys() & self._open.keys(), "a slice is leased and requested"
