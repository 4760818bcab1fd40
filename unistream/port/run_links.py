"""Which run of an orchestrator started or attached to which job, and whether somebody still watches it.

    attach ──► the link of the key is this run's: it sends heartbeats ──► release, or its process dies
    take_over ──► only if the watcher was released, or its last heartbeat is too old

A link is the row of a key, which names the same work for all runs that repeat each other. Calls return the
link as it is afterwards; the caller sees by `RunLink.is_of` whose it is. Times are of one clock, that of the
process that writes the database: `unistream.master.store.run_links` stamps them.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Protocol

import msgspec

from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, JobId
from unistream.model.snapshot_kind import SnapshotKind

KEY_CHARS_MAX: Final = 255
ATTEMPT_MAX: Final = 2**31 - 1


class Watcher(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a step of a run. `root_run`: the first of the runs that repeat each other."""

    root_run: str
    run: str
    step: str
    attempt: int = 0


class RunLink(msgspec.Struct, frozen=True, kw_only=True):
    """Who watches the job of a key. `version` grows with each change of it."""

    key: str
    job: JobId
    watcher: Watcher
    attached_ms: int
    heartbeat_ms: int
    released_ms: int | None = None
    version: int = 0

    def is_of(self, watcher: Watcher) -> bool:
        return self.watcher == watcher and self.released_ms is None


class SeenLink(msgspec.Struct, frozen=True, kw_only=True):
    """The link of a key at `now_ms`, of the clock that stamps heartbeats. `link` None: there is none."""

    link: RunLink | None
    now_ms: int


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the history of a key."""

    key: str
    job: JobId
    watcher: Watcher
    at_ms: int


class LineKind(Enum):
    """What the jobs of a line have in common."""

    KEY = "key"
    NAME = "name"
    LINEAGE = "lineage"


class Line(msgspec.Struct, frozen=True):
    """Jobs that continue each other."""

    kind: LineKind
    value: str


class LineSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A completed snapshot of a job of a line."""

    job: JobId
    checkpoint_id: CheckpointId
    kind: SnapshotKind
    path: str
    triggered_ms: int


class RunLinks(Protocol):
    """Every change is a compare-and-set in one transaction; all methods raise as those of `MetadataStore`."""

    def attach(self, key: str, job: JobId, watcher: Watcher, at_ms: int) -> RunLink:
        """Links `key` to `job` if nobody has, if the link was released, or if it is of the same step of the
        same run and of no later attempt. Otherwise the link stays."""
        ...

    def heartbeat(self, key: str, watcher: Watcher, at_ms: int) -> bool:
        """`watcher` still watches; False: the link is no longer its own."""
        ...

    def release(self, key: str, watcher: Watcher, at_ms: int) -> bool:
        """`watcher` has ended by itself; the link still names its job. False: it is not its own."""
        ...

    def take_over(self, key: str, watcher: Watcher, at_ms: int, silent_ms: int) -> RunLink | None:
        """`watcher` follows the one whose last heartbeat is at least `silent_ms` ago, or who has released.
        None: there is no such key."""
        ...

    def job_of_key(self, key: str) -> RunLink | None: ...

    def keys_of_job(self, job: JobId) -> list[RunLink]:
        """Links that name `job`; the newest first."""
        ...

    def attachments(self, key: str, limit: int = 100) -> list[Attachment]:
        """The history of a key, newest first."""
        ...

    def last_snapshot_of_line(self, line: Line) -> LineSnapshot | None:
        """The newest completed snapshot with a path of all jobs of a line."""
        ...


def check_link(key: str, watcher: Watcher | None = None) -> None:
    """Raises ConfigError: a text is empty, too long or has a NUL, or the attempt is out of range."""
    texts = {"key": key}
    if watcher is not None:
        texts |= {"root run": watcher.root_run, "run": watcher.run, "step": watcher.step}
        if not 0 <= watcher.attempt <= ATTEMPT_MAX:
            raise ConfigError(f"the attempt of a link is 0 to {ATTEMPT_MAX}, not {watcher.attempt}")
    for what, text in texts.items():
        if not 0 < len(text) <= KEY_CHARS_MAX or "\0" in text:
            raise ConfigError(
                f"the {what} of a link has 1 to {KEY_CHARS_MAX} characters without NUL, this one {len(text)}"
            )
