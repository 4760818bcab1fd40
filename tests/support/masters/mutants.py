"""Bugs of an election, and of masters that follow each other, planted on purpose: see `sim.mutants`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from tests.support.masters.checkers import Decisions
from tests.support.masters.connection import SimZooKeeper
from tests.support.masters.outbox import Outbox
from tests.support.masters.request import Request
from tests.support.mutants import Mutant
from tests.support.mutants_shared import Patch
from unistream.base.errors import Fenced, OutcomeUnknown, Transient, UnistreamError
from unistream.base.ids import CheckpointId, JobId, LeaderEpoch
from unistream.client.embedded.contending import Contending, OnEnd, Term
from unistream.core import contract
from unistream.core.leadership import ConnectionState, Resume, Standing, machine
from unistream.core.leadership.machine import LeadershipMachine
from unistream.ha.zookeeper.election import ZooKeeperElection
from unistream.ha.zookeeper.fence import Fence
from unistream.ha.zookeeper.queue import ElectionQueue
from unistream.master.cluster import recovery
from unistream.master.job.conclusion import JobConclusion
from unistream.master.job.durable_requests import DurableRequests
from unistream.master.store.job_store import JOBS, JobStore, SnapshotPointers
from unistream.master.store.leadership import Leadership
from unistream.model.stored_job import StoredRequest
from unistream.port.ha import LeaderInfo
from unistream.port.metadata import CommitRecord
from unistream.port.storage import CheckpointStorage
from unistream.testing.sim.world import Process

# --- who leads --------------------------------------------------------------------------------------


def _unchecked_write() -> list[Patch]:
    return [
        (Fence, "_begin", lambda self: self.client.transaction()),
        (Fence, "check", lambda _self: None),
    ]


def _decides_while_suspended() -> list[Patch]:
    return [
        (Decisions, "must_wait", lambda _self: False),
        (Leadership, "await_leading", lambda self: self.over),
    ]


def _clock_not_asked() -> list[Patch]:
    def may_decide(self: Any) -> bool:
        return self._machine.standing is Standing.LEADING

    return [(ZooKeeperElection, "_may_decide", may_decide)]


def _no_margin() -> list[Patch]:
    return [(machine, "lease_ms", lambda timeout_ms: timeout_ms)]


def _former_session() -> list[Patch]:
    """Three defences are removed: a node of each session, its owner, and a list that is not old."""
    join = ElectionQueue.join

    def join_again(self: Any, look: int) -> Any:
        return join(self, look) if self.node is None else self.check(look)

    class AnyOwner:
        """Equal to all."""

        def __eq__(self, _other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    def watched(self: Any, path: str) -> Any:
        stat = original(self, path)
        return stat if stat is None else stat._replace(ephemeralOwner=AnyOwner())

    original = ElectionQueue._watched

    def children(self: Any, path: str) -> Any:
        return self.read(lambda _: Request(path, read=lambda tree, zxid: tree.children(path, zxid)))

    return [
        (ElectionQueue, "join", join_again),
        (ElectionQueue, "_watched", watched),
        (SimZooKeeper, "children", children),
    ]


def _resumed_by_reconnection() -> list[Patch]:
    original = LeadershipMachine._connected

    def connected(self: Any, event: Any, now_ms: int) -> Any:
        before = self._standing
        commands = original(self, event, now_ms)
        if before is Standing.SUSPENDED is self._standing and self._link is ConnectionState.CONNECTED:
            self._become(Standing.LEADING)
            commands.append(Resume())
        return commands

    return [(LeadershipMachine, "_connected", connected)]


def _seldom_looks() -> list[Patch]:
    return [(machine, "check_interval_ms", lambda _timeout_ms: 3_600_000)]


def _one_attempt() -> list[Patch]:
    return [(Leadership, "attempt", lambda self: self)]


# --- the shells around it ---------------------------------------------------------------------------


def _session_not_checked() -> list[Patch]:
    """A publication changes the node that it finds, which goes with the session of another leader."""
    return [(ZooKeeperElection, "_is_own", lambda _self, _stat: True)]


def _published_too_early() -> list[Patch]:
    original = ZooKeeperElection._grant

    def grant(self: Any, epoch: LeaderEpoch) -> None:
        original(self, epoch)
        with suppress(UnistreamError):
            self.publish(LeaderInfo(epoch=epoch, cluster="it begins"))

    return [(ZooKeeperElection, "_grant", grant)]


def _revoked_in_silence() -> list[Patch]:
    def revoke(self: Any, reason: str) -> None:
        self._fence.revoke(reason)
        self._fence = None

    return [(ZooKeeperElection, "_revoke", revoke)]


def _former_term_left() -> list[Patch]:
    original = Contending._go_on

    def go_on(self: Any) -> None:
        if self._term is not None and self._term.is_over:
            self._term = self._leader = None
        original(self)

    return [(Contending, "_go_on", go_on)]


def _never_tried_again() -> list[Patch]:
    original = Contending._attempt

    class Nobody:
        """Does not lead."""

        def end(self, _reason: str | None, on_end: OnEnd) -> None:
            on_end(None)

    def attempt(self: Any, term: Term) -> Any:
        try:
            return original(self, term)
        except (Transient, OutcomeUnknown, Fenced):
            return Nobody()

    return [(Contending, "_attempt", attempt)]


# --- what the next leader finds ---------------------------------------------------------------------


def _cleaned_too_early() -> list[Patch]:
    original = JobConclusion.conclude

    def conclude(self: Any, ending: Any, final: Any) -> None:
        for command in final:
            if isinstance(command, contract.DiscardSnapshot):
                self._io.discard(command)
        self._ports.io.wait((), 0)
        original(self, ending, final)

    return [(JobConclusion, "conclude", conclude)]


def _results_ignored() -> list[Patch]:
    """Also for the clean-up, which comes first and would hide it."""
    return [
        (JobStore, "unfinished", lambda self: list(self._ha.children(JOBS))),
        (JobStore, "results", lambda _self: ()),
    ]


def _requests_forgotten() -> list[Patch]:
    return [(JobStore, "request", lambda _self, _job: StoredRequest())]


def _cancellation_replaced() -> list[Patch]:
    def set_request(self: Any, job: JobId, wanted: StoredRequest) -> None:
        if self.pointer(job) is not None:
            self._put(f"{JOBS}/{job}/request", wanted)

    return [(JobStore, "set_request", set_request)]


def _refused_before_withdrawn() -> list[Patch]:
    original = DurableRequests._answered

    def answered(self: Any, stop: Any, answer: Any) -> None:
        if answer.exception() is not None and not stop.answer.done():
            stop.answer.set_exception(answer.exception())
        original(self, stop, answer)

    return [(DurableRequests, "_answered", answered)]


def _counter_not_fenced() -> list[Patch]:
    original = SnapshotPointers.begun

    def begun(self: Any, checkpoint_id: CheckpointId) -> None:
        if checkpoint_id > self.highest():
            original(self, checkpoint_id)

    return [(SnapshotPointers, "begun", begun)]


def _files_not_fenced() -> list[Patch]:
    return [(SnapshotPointers, "check", lambda _self: None)]


def _listed_too_late() -> list[Patch]:
    original = recovery.remove_unpointed

    def remove(storage: CheckpointStorage, job: JobId, snapshots: Any) -> None:
        snapshots._ha.check()
        original(storage, job, snapshots)

    return [(recovery, "remove_unpointed", remove), (SnapshotPointers, "check", lambda _self: None)]


def _parallelism_forgotten() -> list[Patch]:
    return [(JobStore, "change", lambda _self, _job: None)]


def _outbox_gap() -> list[Patch]:
    """Numbers come from a sequence, which no transaction locks."""

    def begin(self: Any, process: Process, commit: CommitRecord) -> None:
        self._run(process, commit, self._next_number())

    return [(Outbox, "begin", begin), (Outbox, "_release", lambda _self: None)]


MUTANTS: Final[dict[str, Mutant]] = {
    "unchecked-write": Mutant("a write does not check who leads", _unchecked_write),
    "decides-while-suspended": Mutant("loops go on while leadership is suspended", _decides_while_suspended),
    "clock-not-asked": Mutant(
        "a process that slept beyond its lease decides until it is notified", _clock_not_asked
    ),
    "lease-without-margin": Mutant("a lease is as long as the session", _no_margin),
    "former-session": Mutant(
        "a node counts for a session that has not created it (CURATOR-696)", _former_session
    ),
    "resumed-by-reconnection": Mutant(
        "a suspended leader resumes without a fresh look (CURATOR-460)", _resumed_by_reconnection
    ),
    "seldom-looks": Mutant("the queue is looked at by notifications alone (kazoo#116)", _seldom_looks),
    "one-attempt": Mutant(
        "an attempt to lead that failed while suspended is the end of the leadership", _one_attempt
    ),
    "session-not-checked": Mutant(
        "where the leader is goes with the session of another leader",
        _session_not_checked,
    ),
    "published-too-early": Mutant("a leader is published before it has begun", _published_too_early),
    "revoked-in-silence": Mutant("a contender is not notified of its revocation", _revoked_in_silence),
    "former-term-left": Mutant(
        "a process begins to lead again before its former leadership has ended", _former_term_left
    ),
    "never-tried-again": Mutant("a leader that could not begin is not tried again", _never_tried_again),
    "cleaned-before-the-result": Mutant(
        "what a job has left is removed before its result is durable (FLIP-194)", _cleaned_too_early
    ),
    "results-ignored": Mutant(
        "a new leader starts a job whose clean-up was cut off (FLINK-21928)", _results_ignored
    ),
    "requests-forgotten": Mutant(
        "a new leader does not know what was accepted for a job", _requests_forgotten
    ),
    "cancellation-replaced": Mutant(
        "a stop that is refused takes the place of an accepted cancellation", _cancellation_replaced
    ),
    "refused-before-withdrawn": Mutant(
        "a refused stop is answered while it is still stored for the next leader", _refused_before_withdrawn
    ),
    "counter-not-fenced": Mutant(
        "an old leader begins a checkpoint under a number that another one has used", _counter_not_fenced
    ),
    "files-not-fenced": Mutant(
        "an old leader removes the files of a checkpoint that the new one has begun", _files_not_fenced
    ),
    "listed-too-late": Mutant(
        "a leader lists what never counted once it has made sure that it leads", _listed_too_late
    ),
    "parallelism-forgotten": Mutant(
        "a new leader runs a job at the parallelism of its submission", _parallelism_forgotten
    ),
    "outbox-gap": Mutant("a commit is recorded under a number that readers have passed", _outbox_gap),
}
