"""Faults at a moment: when a leader has begun to lead, or when something that it has written is durable.

At random times a fault seldom meets one of the few milliseconds in which two steps of a master are apart. So
the swarm draws a kind of moment for some runs, and how probably, and how soon after it, the leader is struck.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
        most: How many faults there are at most.
        then: What is drawn once those have happened.
    """

    moment: str
    chance: float
    within_ms: float
    kind: str
    lasts: tuple[float, float]
    most: int = STRIKES_MAX
    then: Strikes | None = None

    def text(self) -> str:
        text = f"{self.kind} up to {self.within_ms:.0f} ms after {self.moment}, with p {self.chance:.2f}"
        return text if self.then is None else f"{text}, then {self.then.text()}"


STANDS: Final = Strikes(moment=RECOVERS, chance=0.5, within_ms=30, kind="stand_still", lasts=(3.0, 7.0))
LISTS_LATE: Final = Strikes(
    moment="attempts",
    chance=1.0,
    within_ms=3_000,
    kind="kill",
    lasts=(0.0, 0.0),
    most=1,
    then=Strikes(moment=RECOVERS, chance=1.0, within_ms=3, kind="stand_at_storage", lasts=(2.5, 4.5), most=1),
)
"""The second leader lists what never counted when the third one, which nothing strikes, has begun a
checkpoint, and has yet to complete it."""
SLEEPS_SOON: Final = Strikes(moment="attempts", chance=0.5, within_ms=1_000, kind="stop", lasts=(3.0, 7.0))
SLEEPS: Final = replace(SLEEPS_SOON, within_ms=3_000)


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
    return random.choice((STANDS, LISTS_LATE, LISTS_LATE, SLEEPS_SOON, SLEEPS))


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

    def stand_at_storage(self, for_ms: float) -> None:
        """The same before it next lists or removes checkpoints: a read of ZooKeeper that takes so long fails,
        and its leader gives up; what comes between two of them does not."""


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
        self._leading = leading
        self._timeout_ms = timeout_ms
        self._is_over = False
        self._draw(drawn)

    def _draw(self, drawn: Strikes | None) -> None:
        self._drawn = drawn
        self._left = 0 if drawn is None else drawn.most

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
        if not self._left and drawn.then is not None:
            self._draw(drawn.then)
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
            case "stand_at_storage":
                victim.stand_at_storage(for_ms)
            case _:
                victim.disconnect()
