"""Intensities of the faults of a run: each is drawn from the seed, and half of them are zero.

At equal rates rare pairs of faults never occur together; drawn per run ("swarm") some runs lose every third
message and never a worker, others kill a worker each second on a perfect network.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Probabilities per occasion, unless the name says otherwise.

    Attributes:
        loss: A request or an answer is lost.
        duplicate: A request arrives twice.
        late: A message takes seconds instead of milliseconds, so that others overtake it.
        kill_every_ms, pause_every_ms: Mean time between kills and pauses of workers; 0: none.
        drain_every_ms: Mean time between drains of workers; 0: none.
        pause_ms: Longest pause; above the heartbeat timeout it makes zombies.
        stream_break: A data stream breaks, per element.
        start_fail: A worker does not start.
        store_fail: A write or a listing fails for certain.
        store_unknown: The outcome of writing a manifest is unknown.
        store_slow_ms: Mean time of writing a manifest; 0: quick.
        file_fail, read_fail: Of state files.
        on_map, on_snapshot, on_restore, on_close: User code raises there.
        commit_unknown, commit_retry: Outcomes of a commit in the table. In `simulate`, `commit_unknown` cuts
            off a commit of a kept sink between two of its lines, or loses its result.
        command_twice: The last commands of a machine are performed twice.
        master_every_ms: Mean time between changes of the master; 0: none.
        spill_fail: A stored result cannot be written.
        spill_lost: The disk has lost a stored result when a consumer opens it.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    late: float = 0.0
    kill_every_ms: float = 0.0
    pause_every_ms: float = 0.0
    pause_ms: float = 0.0
    stream_break: float = 0.0
    start_fail: float = 0.0
    store_fail: float = 0.0
    store_unknown: float = 0.0
    store_slow_ms: float = 0.0
    file_fail: float = 0.0
    read_fail: float = 0.0
    on_map: float = 0.0
    on_snapshot: float = 0.0
    on_restore: float = 0.0
    on_close: float = 0.0
    commit_unknown: float = 0.0
    commit_retry: float = 0.0
    command_twice: float = 0.0
    master_every_ms: float = 0.0
    drain_every_ms: float = 0.0
    spill_fail: float = 0.0
    spill_lost: float = 0.0

    def text(self) -> str:
        """The intensities that are not zero, as text."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ", ".join(f"{name}={value:.3g}" for name, value in values if value) or "none"


NONE = Faults()


def intensity(random: Random, low: float, high: float, share: float = 0.5) -> float:
    """A number between `low` and `high` in a `share` of the runs; 0 in the others."""
    value = low + (high - low) * random.random()
    return value if random.random() < share else 0.0


def draw(random: Random) -> Faults:
    """Intensities of one run."""
    some = partial(intensity, random)
    faults = Faults(
        loss=some(0.01, 0.3, 0.4),
        duplicate=some(0.01, 0.3),
        late=some(0.01, 0.1),
        kill_every_ms=some(1_500, 12_000),
        pause_every_ms=some(2_000, 12_000, 0.4),
        pause_ms=random.choice((1_000, 5_000, 14_000)),
        stream_break=some(0.001, 0.02, 0.3),
        start_fail=some(0.05, 0.5, 0.3),
        store_fail=some(0.02, 0.3, 0.4),
        store_unknown=some(0.05, 0.5, 0.4),
        store_slow_ms=some(100, 1_500, 0.4),
        file_fail=some(0.01, 0.1, 0.3),
        read_fail=some(0.01, 0.2, 0.3),
        on_map=some(0.005, 0.05, 0.3),
        on_snapshot=some(0.01, 0.1, 0.2),
        on_restore=some(0.05, 0.3, 0.2),
        on_close=some(0.05, 0.5, 0.3),
        commit_unknown=some(0.05, 0.3, 0.3),
        commit_retry=some(0.05, 0.5, 0.3),
        command_twice=some(0.2, 1.0, 0.25),
        master_every_ms=some(3_000, 15_000, 0.25),
    )
    return replace(faults, pause_ms=faults.pause_ms if faults.pause_every_ms else 0.0)
