"""Virtual time, one queue of events, one source of chance, and the story of a run.

A simulated run reads no other clock and no other generator, and no set of strings decides an order, so a seed
is a run: two runs of one seed have the same story, character by character (I17).
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from unistream.testing.sim.faults import NONE, Faults
from unistream.testing.sim.story import StoryLine

Action = Callable[[], None]

WALL_MS: Final = 1_700_000_000_000  # any date: only differences mean something
EVENTS_MAX: Final = 60_000  # the longest of 100,000 runs had 31,589; more is a loop without progress


class Violation(AssertionError):
    """An invariant does not hold; the text begins with its number."""


class Killed(BaseException):
    """Ends what a process was doing when it was killed, from inside of a call; nothing survives it."""


class Process:
    """A process that can die, or be paused for a while and then resume as if nothing had happened."""

    __slots__ = ("deferred", "is_alive", "is_paused", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.is_paused = False
        self.deferred: list[Action] = []


class World:
    """One run.

    Attributes:
        random: The only source of chance.
        now: Virtual milliseconds since the start.
        marks: Rare branches that this run has reached.
        faults: The present intensities; `NONE` once the world is healed.
        places: How many workers the hosts have room for; None: any number.
        scratch: Folder for real files; the story does not name it.
        disk: Local files of workers, in memory.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)  # noqa: S311  repeatable, not secret
        self.now = 0.0
        self.marks: set[str] = set()
        self.faults: Faults = NONE
        self.places: int | None = None
        self.scratch = ""
        self.disk: dict[Path, bytes] = {}
        self.events = 0
        self.broken: Exception | None = None
        self._queue: list[tuple[float, int, Process | None, Action]] = []
        self._sequence = 0
        self._story: list[StoryLine] = []

    # --- time -------------------------------------------------------------------------------------

    def at(self, delay_ms: float, action: Action, owner: Process | None = None) -> None:
        """`action` happens `delay_ms` from now, if `owner` lives then; if it is paused, after the pause."""
        self._sequence += 1
        heapq.heappush(self._queue, (self.now + delay_ms, self._sequence, owner, action))

    def step(self, until_ms: float) -> bool:
        """The next event, if it is due by `until_ms`. False: there is none, and it is `until_ms` now."""
        if not self._queue or self._queue[0][0] > until_ms:
            self.now = max(self.now, until_ms)
            return False
        at_ms, _, owner, action = heapq.heappop(self._queue)
        self.now = max(self.now, at_ms)
        if owner is not None:
            if not owner.is_alive:
                return True
            if owner.is_paused:
                owner.deferred.append(action)
                return True
        self.events += 1
        if self.events > EVENTS_MAX:
            raise Violation(f"liveness: {EVENTS_MAX} events and no end")
        try:
            action()
        except Killed:
            self.sometimes("a process was killed during a call")
        except Exception as error:  # a call of the product may have led here, and handle it as a failure
            self.broken = self.broken or error
            raise
        if self.broken is not None:  # the caller may have handled it as a failure of a task
            raise self.broken
        return True

    def resume(self, process: Process) -> None:
        """Performs the actions that were due during the pause, in their order."""
        process.is_paused = False
        actions, process.deferred = process.deferred, []
        for action in actions:
            self.at(0, action, process)

    # --- chance -----------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.random.random()

    # --- story ------------------------------------------------------------------------------------

    def violated(self, text: str) -> Violation:
        """A violation to be raised; it ends the run even if it is caught."""
        violation = Violation(text)
        self.broken = self.broken or violation
        return violation

    def log(self, text: str, source: str = "", target: str = "", *, lost: bool = False) -> None:
        """One line of the story; see `StoryLine`."""
        if self.scratch:
            text = text.replace(self.scratch, "scratch")
        self._story.append(StoryLine(self.now, text, source, target, lost))

    def sometimes(self, mark: str) -> None:
        """Marks that this rare branch was reached; a batch has to reach all of them."""
        self.marks.add(mark)

    def lines(self) -> list[StoryLine]:
        """The story as lines with times and processes."""
        return list(self._story)

    def story(self) -> list[str]:
        """The story as text for people."""
        return [str(line) for line in self._story]

    def trace_hash(self) -> str:
        """Equal for equal runs."""
        digest = hashlib.sha256()
        for line in self._story:
            digest.update(f"{line.at_ms!r} {line.text}\n".encode())
        return digest.hexdigest()


class VirtualClock:
    """`base.clock.Clock` of a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic_ms(self) -> int:
        return int(self._world.now)

    def wall_ms(self) -> int:
        return WALL_MS + int(self._world.now)
