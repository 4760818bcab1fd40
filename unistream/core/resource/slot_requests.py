"""The slots that jobs request from the ResourceManager, by age. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from unistream.base.ids import JobId
from unistream.core.contract import SlotRequest
from unistream.model.resources import ResourceProfile

RequestId = tuple[JobId, str]


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A request without a lease. `number`: its age."""

    id: RequestId
    request: SlotRequest
    number: int

    @property
    def job(self) -> JobId:
        return self.id[0]


class SlotRequests:
    """Open requests, oldest first, and the ages of those that have a lease: one that loses it, or its
    replacement, keeps its age until the job returns it."""

    def __init__(self) -> None:
        self._open: dict[RequestId, OpenRequest] = {}
        self._ages: dict[RequestId, int] = {}  # of all requests that were not returned
        self._profiles: dict[RequestId, ResourceProfile] = {}  # the same
        self._replaced: set[RequestId] = set()  # those with a lease that another one is requested for
        self._count = 0

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[OpenRequest]:
        """Open ones, oldest first; they may be served and forgotten during the iteration."""
        return iter(sorted(self._open.values(), key=lambda request: request.number))

    def __contains__(self, request: RequestId) -> bool:
        """It is open."""
        return request in self._open

    @property
    def jobs(self) -> tuple[JobId, ...]:
        """Jobs with open requests, the longest waiting first."""
        return tuple(dict.fromkeys(request.job for request in self))

    def is_known(self, request: RequestId) -> bool:
        """It is open, or has a lease."""
        return request in self._ages

    def is_replaced(self, request: RequestId) -> bool:
        """It still has its lease, and the one that takes its place was requested."""
        return request in self._replaced

    def profile(self, request: RequestId) -> ResourceProfile:
        """What it wants, open or not."""
        return self._profiles[request]

    def open(self, request: RequestId, wanted: SlotRequest, *, keeps: bool = False) -> None:
        """`keeps`: the request that it replaces still has its lease."""
        replaced = (request[0], wanted.replaces)
        former = self._ages.get(replaced)
        if keeps:
            self._replaced.add(replaced)
        elif former is not None:
            self.forget((replaced,))
        self._profiles[request] = wanted.profile
        if request not in self._ages:
            self._count += 1
            self._ages[request] = self._count if former is None else former
        self._open[request] = OpenRequest(request, wanted, self._ages[request])

    def served(self, request: RequestId) -> None:
        del self._open[request]

    def forget(self, requests: Iterable[RequestId]) -> None:
        for request in requests:
            self._open.pop(request, None)
            self._ages.pop(request, None)
            self._profiles.pop(request, None)
            self._replaced.discard(request)

    def of(self, job: JobId) -> set[RequestId]:
        """All requests of a job that were not returned."""
        return {request for request in self._ages if request[0] == job}

    def take(self, unwanted: Callable[[OpenRequest], bool]) -> dict[JobId, list[SlotRequest]]:
        """Removes the open ones that are `unwanted`; returns them by job, oldest first."""
        taken: dict[JobId, list[SlotRequest]] = {}
        for request in self:
            if unwanted(request):
                taken.setdefault(request.job, []).append(request.request)
                self.forget((request.id,))
        return taken
