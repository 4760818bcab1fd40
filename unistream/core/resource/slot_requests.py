"""The slots that jobs ask the ResourceManager for, and who asked first. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from unistream.base.ids import JobId
from unistream.core.contract import SlotRequest

RequestId = tuple[JobId, str]


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A slot that is wanted and not there yet. `number`: its age."""

    id: RequestId
    request: SlotRequest
    number: int

    @property
    def job(self) -> JobId:
        return self.id[0]


class SlotRequests:
    """Open requests, oldest first, and the ages of those that have a lease: one that loses it, or the one
    that takes its place, keeps its age until the job gives it back."""

    def __init__(self) -> None:
        self._open: dict[RequestId, OpenRequest] = {}
        self._ages: dict[RequestId, int] = {}  # of all requests that were not returned
        self._count = 0

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    def __iter__(self) -> Iterator[OpenRequest]:
        """Those that are open, oldest first; they may be served and forgotten meanwhile."""
        return iter(sorted(self._open.values(), key=lambda request: request.number))

    def __contains__(self, request: RequestId) -> bool:
        """Is it open?"""
        return request in self._open

    @property
    def jobs(self) -> tuple[JobId, ...]:
        """Those that wait, in the order in which they have begun to."""
        return tuple(dict.fromkeys(request.job for request in self))

    def is_known(self, request: RequestId) -> bool:
        """It is open, or has a lease."""
        return request in self._ages

    def open(self, request: RequestId, wanted: SlotRequest) -> None:
        """It waits for a slot (again)."""
        former = self._ages.pop((request[0], wanted.replaces), None)
        if request not in self._ages:
            self._count += 1
            self._ages[request] = self._count if former is None else former
        self._open[request] = OpenRequest(request, wanted, self._ages[request])

    def served(self, request: RequestId) -> None:
        """It has a lease now."""
        del self._open[request]

    def forget(self, requests: Iterable[RequestId]) -> None:
        """They are not wanted any more."""
        for request in requests:
            self._open.pop(request, None)
            self._ages.pop(request, None)

    def of(self, job: JobId) -> set[RequestId]:
        """All of a job that were not returned."""
        return {request for request in self._ages if request[0] == job}

    def take(self, unwanted: Callable[[OpenRequest], bool]) -> dict[JobId, list[SlotRequest]]:
        """Forgets the open ones that are `unwanted`; which they were, oldest first, for each job."""
        taken: dict[JobId, list[SlotRequest]] = {}
        for request in self:
            if unwanted(request):
                taken.setdefault(request.job, []).append(request.request)
                self.forget((request.id,))
        return taken
