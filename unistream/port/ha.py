"""High availability: who leads a cluster, and the pointers from which its next leader recovers.

    election ── granted(store) ──► the contender leads: it alone writes, with the epoch of its store
             ── suspended() ────► it decides nothing more, at once; what runs goes on
             ── resumed() ──────► it leads as before: nobody else has led meanwhile
             ── revoked(why) ───► its epoch is over for good; another `granted` brings a new store

What is stored here are pointers: small values that name what is in the checkpoint storage. A name is a path
of plain components, such as ``jobs/3f2a/checkpoints/12``; what is below a name is found by `children`.
One suite holds every adapter to it: tests/contract.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from unistream.base.ids import LeaderEpoch
from unistream.base.releases import SILENT
from unistream.port.storage import Created


class HaEntry(NamedTuple):
    """A stored value. `version` grows with each write to its name."""

    value: bytes
    version: int


class HaStore(Protocol):
    """The pointers of one cluster, as the leader of `epoch` sees and writes them. Thread-safe.

    Every write is fenced: in the same transaction as the write it is checked that no newer leader exists.
    All methods are bounded in time. Every write raises, besides what it names:

        Fenced: there is a newer leader, or this one was revoked; nothing was changed.
        Unreachable: the store does not answer; nothing was changed.
        OutcomeUnknown: the store did not confirm; it may or may not have been changed.
    """

    @property
    def epoch(self) -> LeaderEpoch:
        """Larger than those of all earlier leaders of this cluster."""
        ...

    def leads(self) -> bool:
        """Whether this leader may decide now, as far as is known here without a question to anybody: False
        while it is suspended, once its lease is over, and when it was revoked. Returns at once."""
        ...

    def read(self, name: str) -> HaEntry | None:
        """What is stored under `name`; None: nothing. Sees all writes of earlier leaders.

        Raises:
            Unreachable: the store does not answer.
            CorruptSnapshot: what is there was not written by this product, or by a newer version of it.
        """
        ...

    def children(self, name: str) -> Sequence[str]:
        """The last components of the names directly below `name` ("" for the root), sorted; those that have
        only names below them, too. None if there is nothing. Raises Unreachable."""
        ...

    def create(self, name: str, value: bytes) -> Created:
        """Stores a new value. EXISTS: it is there already, with the same bytes.

        Raises:
            Fenced: also if another value is there.
        """
        ...

    def replace(self, name: str, value: bytes, version: int) -> int:
        """Replaces the value of this version; returns the new version.

        Raises:
            Fenced: also if another version is there, or none.
        """
        ...

    def remove(self, name: str) -> None:
        """Removes the value and all that is below it. Absent is fine."""
        ...

    def check(self) -> None:
        """Raises Fenced if this is not the leader's store any more; Unreachable if nobody can say."""
        ...


class LeaderInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Where the leader of a cluster is found.

    Attributes:
        cluster: Id of the process that leads, for people.
        rest_url: Of its REST API; None: it has none.
        control: Address where workers register; None: only workers that it starts itself know it.
        jobs: URL of the folder where it stores jobs, and other leaders have to find them; "": not said.
        version: Of its installation.
    """

    epoch: LeaderEpoch
    cluster: str
    rest_url: str | None = None
    control: str | None = None
    jobs: str = ""
    version: str = SILENT


class ContenderInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A process that leads, or waits to lead, for people. `process`: its host and pid; "": it is of a version
    that does not say them. `rest_url`: where it answers, with the leader's answers if it stands by; None: it
    does not, or does not say so."""

    process: str
    leads: bool
    rest_url: str | None = None


class Contender(Protocol):
    """Who wants to lead. Called on a thread of the election, one call at a time; must return at once."""

    def granted(self, store: HaStore) -> None: ...

    def suspended(self) -> None: ...

    def resumed(self) -> None: ...

    def revoked(self, reason: str) -> None: ...


class LeaderElection(Protocol):
    """One process's part in choosing the leader of a cluster."""

    def start(self, contender: Contender) -> None:
        """Takes part until `close`. Returns at once.

        Raises:
            ConfigError: it can never lead here: what is stored is foreign or of a newer version, access is
                denied, or options contradict each other.
            Unreachable: the service does not answer at all.
        """
        ...

    def publish(self, info: LeaderInfo) -> None:
        """Tells clients and workers where the leader is. Fenced as a write of the store with `info.epoch`;
        raises as such."""
        ...

    def contenders(self) -> Sequence[ContenderInfo] | None:
        """Who takes part, in the order in which they will lead. None: the service does not answer now. May
        take as long as a request to it."""
        ...

    def close(self) -> None:
        """Gives up leadership, so that another one may lead at once. Safe to repeat."""
        ...


class LeaderRetrieval(Protocol):
    """Finds the leader, for clients and workers."""

    def leader(self, timeout_s: float) -> LeaderInfo | None:
        """The leader as last published; None: nobody leads.

        Raises:
            Unreachable: the service does not answer in time.
        """
        ...

    def close(self) -> None: ...
