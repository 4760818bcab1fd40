"""Faults at a moment: when a leader has begun to lead, or when something that it has written is durable.

At random times a fault seldom meets one of the few milliseconds in which two steps of a master are apart. So
the swarm draws a kind of moment for some runs, and how probably, and how soon after it, the leader is struck.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from unistream.testing.sim.world import World

SHARE: Final = 0.45  # of the runs with such faults
STRIKES_MAX: Final = 3  # of a run: each costs a takeover
SOONEST: Final = 0.4  # of the longest time until a strike
GRANTED: Final = "granted"
RECOVERS: Final = "granted with jobs"
ANSWERED: Final = "answered"
MOMENTS: Final = (
    GRANTED,
    RECOVERS,
    ANSWERED,
    "job",
    "attempts",
    "request",
    "counter",
    "checkpoints",
    "results",
)
"""A leader has begun; a user was answered; or the name of what is durable, as the decision on high
availability has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strikes:
    """What a run draws.

    Attributes:
        moment: One of `MOMENTS`.
        chance: Probability that such a moment is followed by a fault.
        within_ms: The longest time until that.
        kind: The method of `Target` that is called.
        lasts: The shortest and the longest time of a fault that ends by itself, in session timeouts.
    """

    moment: str
    chance: float
    within_ms: float
    kind: str
    lasts: tuple[float, float]

    def text(self) -> str:
        return f"{self.kind} up to {self.within_ms:.0f} ms after {self.moment}, with p {self.chance:.2f}"


def draw_strikes(random: Random) -> Strikes | None:
    """Those of one run; None: there are none."""
    drawn = Strikes(
        moment=random.choice(MOMENTS),
        chance=random.choice((0.15, 0.4, 1.0)),
        within_ms=random.choice((3, 15, 60, 400)),
        kind=random.choice(("kill", "stop", "stand_still", "disconnect", "cut")),
        lasts=random.choice(((0.8, 1.2), (0.8, 1.2), (0.8, 4.0))),
    )
    return drawn if random.random() < SHARE else None


def strikes_after_rescales(random: Random) -> Strikes:
    """Those of a run whose jobs are rescaled: when tasks have just been deployed, or a user was answered."""
    moment, within_ms = random.choice((("attempts", 200), (ANSWERED, 3), (ANSWERED, 3), (ANSWERED, 100)))
    return Strikes(
        moment=moment,
        chance=0.8,
        within_ms=within_ms,
        kind=random.choice(("kill", "kill", "disconnect")),
        lasts=(0.8, 1.2),
    )


def drowsy_strikes(random: Random) -> Strikes:
    """Those of a run whose leaders stand still for long: while they begin, or once they have jobs again."""
    moment, within_ms, kind = random.choice(
        (
            (RECOVERS, 30, "stand_still"),
            (RECOVERS, 30, "stand_still"),
            ("attempts", 1_000, "stop"),
            ("attempts", 3_000, "stop"),
        )
    )
    return Strikes(
        moment=moment,
        chance=0.5,
        within_ms=within_ms,
        kind=kind,
        lasts=(3.0, 7.0),
    )


class Target(Protocol):
    """A place of a master; `run.Place`."""

    @property
    def is_up(self) -> bool: ...

    def kill(self) -> None: ...

    def cut(self, for_ms: float) -> None: ...

    def stop(self, for_ms: float) -> None: ...

    def disconnect(self) -> None: ...

    def stand_still(self, for_ms: float) -> None:
        """The process is stopped before the next request of its jobs to ZooKeeper, and their thread goes on
        as the last one."""


class Moments:
    """Those of one run.

    Args:
        leading: Where the leader is.
        timeout_ms: Of its session.
    """

    def __init__(
        self, world: World, drawn: Strikes | None, leading: Callable[[], Target | None], timeout_ms: int
    ) -> None:
        self._world = world
        self._drawn = drawn
        self._leading = leading
        self._timeout_ms = timeout_ms
        self._left = STRIKES_MAX
        self._is_over = False

    def end(self) -> None:
        """The world is healed."""
        self._is_over = True

    def comes(self, moment: str) -> None:
        """It is one of `MOMENTS`, or of no interest."""
        drawn = self._drawn
        if drawn is None or moment != drawn.moment or self._is_over or not self._left:
            return
        victim = self._leading()
        if victim is not None and self._world.chance(drawn.chance):
            self._left -= 1
            delay_ms = self._world.between(SOONEST, 1) * drawn.within_ms
            self._world.at(delay_ms, lambda: self._strike(victim, drawn))

    def _strike(self, victim: Target, drawn: Strikes) -> None:
        if self._is_over or not victim.is_up:
            return
        self._world.sometimes("a leader was struck at a chosen moment")
        for_ms = self._world.between(*drawn.lasts) * self._timeout_ms
        match drawn.kind:
            case "kill":
                victim.kill()
            case "stop":
                victim.stop(for_ms)
            case "cut":
                victim.cut(for_ms)
            case "stand_still":
                victim.stand_still(for_ms)
            case _:
                victim.disconnect()
