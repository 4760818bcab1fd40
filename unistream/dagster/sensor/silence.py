"""Which unfinished runs have no process any more: decided from their heartbeats, without I/O.

    its link                          the run
    heartbeats come                   is alive
    was released                      is left alone: its step has ended
    silent, seen for the first time   is suspected
    silent, as an earlier tick saw    has ended
    none, and no event for long       the same, after longer

One silent look is not enough: after the cluster or the database was away, all heartbeats are old for a
moment. So one tick suspects, and a later one decides if no heartbeat came in between; a tick that finds the
cluster away forgets all suspicions. Times are of the clock that stamps heartbeats.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import dagster as dg

from unistream.dagster.run.watching import mark_of, watcher_of
from unistream.port.run_links import RunLink, SeenLink

UNLINKED: Final = -1
"""What stands instead of the version of a link: there is none."""


class SilenceVerdict(Enum):
    """What a tick does about one step of a run."""

    ALIVE = "its heartbeats come"
    LEFT = "nothing is known against it"
    SUSPECTED = "a later tick decides"
    ENDED = "its process is gone"


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A silent link. `version`: of it, which a heartbeat would change; `since_ms`: of the first such tick."""

    version: int
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceLimits:
    """How long a run may be silent, in ms.

    Attributes:
        silent_ms: Since its last heartbeat; half of it must lie between two ticks that agree.
        unlinked_ms: Since its last event in Dagster, of a step that has begun and has no link.
    """

    silent_ms: int
    unlinked_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedStep:
    """A step of an unfinished run as a tick sees it.

    Attributes:
        seen: The link of its key, and the time.
        quiet_ms: Since the last event of the run in Dagster; None: the step has not begun.
        suspicion: Of an earlier tick.
    """

    run: dg.DagsterRun
    step: str
    seen: SeenLink
    quiet_ms: int | None
    suspicion: Suspicion | None = None

    @property
    def link(self) -> RunLink | None:
        """The link, if it is of this run."""
        link = self.seen.link
        return link if link is not None and link.watcher.run == self.run.run_id else None

    @property
    def is_taken(self) -> bool:
        """An earlier tick has decided, and its daemon died, or the job takes its time to end."""
        link = self.seen.link
        return link is not None and link.watcher == mark_of(
            watcher_of(self.run, self.step, link.watcher.attempt)
        )


@dataclass(frozen=True, slots=True)
class Judged:
    """`text`: what was seen, for people; `suspicion`: to be remembered until the next tick."""

    verdict: SilenceVerdict
    text: str
    suspicion: Suspicion | None = None


def judged(step: UnfinishedStep, limits: SilenceLimits) -> Judged:
    """The decision about one step of a run that has not ended."""
    link, now_ms = step.link, step.seen.now_ms
    if step.is_taken:
        return Judged(SilenceVerdict.ENDED, f"step {step.step} was found silent by an earlier tick")
    if link is None:
        return _judged_unlinked(step, limits)
    if link.released_ms is not None:
        return Judged(SilenceVerdict.LEFT, f"step {step.step} has left its job in order")
    silent_ms = now_ms - link.heartbeat_ms
    text = (
        f"step {step.step}, which watched job {link.job}, has sent no heartbeat for {silent_ms / 1000:.0f} s"
    )
    if silent_ms < limits.silent_ms:
        return Judged(SilenceVerdict.ALIVE, text)
    return _confirmed(step, link.version, text, limits)


def _judged_unlinked(step: UnfinishedStep, limits: SilenceLimits) -> Judged:
    if step.quiet_ms is None:
        return Judged(SilenceVerdict.LEFT, f"step {step.step} has not begun")
    quiet = f"has reported nothing for {step.quiet_ms / 1000:.0f} s"
    text = f"step {step.step} has begun, watches no job, and {quiet}"
    if step.quiet_ms < limits.unlinked_ms:
        return Judged(SilenceVerdict.LEFT, text)
    return _confirmed(step, UNLINKED, text, limits)


def _confirmed(step: UnfinishedStep, version: int, text: str, limits: SilenceLimits) -> Judged:
    """The verdict that a step has ended, if a tick that is long enough ago has seen the same."""
    now_ms, before = step.seen.now_ms, step.suspicion
    if before is None or before.version != version or before.since_ms > now_ms:
        return Judged(SilenceVerdict.SUSPECTED, text, Suspicion(version, now_ms))
    is_confirmed = now_ms - before.since_ms >= limits.silent_ms // 2
    return Judged(SilenceVerdict.ENDED if is_confirmed else SilenceVerdict.SUSPECTED, text, before)


def of_run(steps: Sequence[Judged]) -> Judged:
    """The decision about a run: one step whose heartbeats come shows that its process is alive."""
    order = (SilenceVerdict.ALIVE, SilenceVerdict.ENDED, SilenceVerdict.SUSPECTED, SilenceVerdict.LEFT)
    return min(steps, key=lambda one: order.index(one.verdict))


# --- what ticks remember ---------------------------------------------------------------------------


def remembered(cursor: str | None) -> dict[str, Suspicion]:
    """The suspicions of the last tick, by run and step; none if the cursor is not of this sensor.

    >>> remembered(written({"5f0c orders": Suspicion(7, 60_000)}))
    {'5f0c orders': Suspicion(version=7, since_ms=60000)}
    """
    try:
        found = json.loads(cursor or "{}")
        return {name: Suspicion(int(version), int(since)) for name, (version, since) in found.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def written(suspicions: Mapping[str, Suspicion]) -> str:
    """The suspicions as the text of a cursor."""
    return json.dumps({name: [one.version, one.since_ms] for name, one in suspicions.items()})
