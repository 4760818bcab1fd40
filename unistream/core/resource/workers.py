"""One worker as the ResourceManager's machine knows it, and when it has to be given up. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from unistream.base.ids import JobId, TaskManagerId
from unistream.core.contract import SlotLease
from unistream.core.resource.blocklist import BlockRules
from unistream.core.resource.messages import ProbeOutcome, WorkerProbed, WorkerView
from unistream.core.resource.slot_requests import RequestId
from unistream.model.resources import ANY_PROFILE, ResourceProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRules:
    """What a cluster's driver can do, and what its configuration says.

    Attributes:
        active: Workers are started and stopped on demand; else they come and go by themselves.
        slot: Profile of a slot of a worker that is started for requests that tell none.
        largest: The most that the slot of a started worker can have; a part that is not told: no limit.
        startup_ms: Passive: requests that no registered worker is big enough for wait at least
            until the cluster is as old as this.
        probe_interval_ms: Between two probes of one worker; 0: workers are not probed.
        unreachable_after: A worker is given up after so many probes in a row that found nobody there;
            0: only by timeout.
    """

    active: bool = True
    slot: ResourceProfile = ANY_PROFILE
    largest: ResourceProfile = ANY_PROFILE
    startup_ms: int = 300_000
    probe_interval_ms: int = 0
    unreachable_after: int = 2
    block: BlockRules = field(default_factory=BlockRules)


@dataclass(slots=True)
class Worker:
    """`address` None = starting. `heard_ms`: start, registration or last heartbeat; `reached_ms`:
    registration or last answered probe. `leases`: by request."""

    id: TaskManagerId
    slots: int
    heard_ms: int
    idle_since_ms: int
    profile: ResourceProfile = ANY_PROFILE
    address: str | None = None
    host: str = ""
    reached_ms: int = 0
    probed_ms: int = 0
    is_probed: bool = False  # a probe is under way
    silent: int = 0  # probes in a row without an answer
    unreachable: int = 0  # probes in a row that found nobody
    unreachable_why: str = ""
    leases: dict[RequestId, SlotLease] = field(default_factory=dict)

    @property
    def free(self) -> int:
        return self.slots - len(self.leases)

    @property
    def is_up(self) -> bool:
        return self.address is not None

    @property
    def is_unused(self) -> bool:
        """No job has anything there."""
        return self.is_up and not self.leases

    @property
    def jobs(self) -> tuple[JobId, ...]:
        """Those that have a lease there."""
        return tuple(dict.fromkeys(job for job, _ in self.leases))

    def came_up(self, address: str, now_ms: int) -> None:
        """It has registered."""
        self.address = address
        self.idle_since_ms = self.reached_ms = self.probed_ms = now_ms

    def drop(self, requests: Iterable[RequestId], now_ms: int) -> None:
        """These leases are over."""
        for request in requests:
            self.leases.pop(request, None)
        if self.is_unused:
            self.idle_since_ms = now_ms

    def probed(self, event: WorkerProbed, now_ms: int) -> None:
        self.is_probed = False
        if event.outcome is ProbeOutcome.ANSWERED:
            self.reached_ms = now_ms
            self.silent = self.unreachable = 0
            return
        self.silent += 1
        self.unreachable = self.unreachable + 1 if event.outcome is ProbeOutcome.UNREACHABLE else 0
        self.unreachable_why = event.reason

    def reason_to_give_up(
        self, rules: ResourceRules, *, now_ms: int, start_timeout_ms: int, heartbeat_timeout_ms: int
    ) -> str | None:
        """None: it may live on."""
        silent_ms = now_ms - self.heard_ms
        if not self.is_up:
            late = silent_ms > start_timeout_ms
            return f"it did not register within {start_timeout_ms} ms" if late else None
        if silent_ms > heartbeat_timeout_ms:
            return f"no heartbeat for {silent_ms} ms (heartbeat.timeout)"
        if rules.unreachable_after and self.unreachable >= rules.unreachable_after:
            return (
                f"it could not be reached {self.unreachable} times in a row "
                f"(heartbeat.rpc-failure-threshold): {self.unreachable_why}"
            )
        unheard_ms = now_ms - self.reached_ms
        if self.silent >= max(1, rules.unreachable_after) and unheard_ms > heartbeat_timeout_ms:
            return f"it has not answered for {unheard_ms} ms (heartbeat.timeout)"
        return None

    def view(self, blocked_ms: int) -> WorkerView:
        return WorkerView(
            task_manager=self.id,
            slots=self.slots,
            free=self.free,
            profile=self.profile,
            host=self.host,
            blocked_ms=blocked_ms,
            jobs=self.jobs,
        )
