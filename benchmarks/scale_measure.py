"""What a step of `benchmarks.scale` has cost the master, and how that is shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.scale_cluster import Figures, Master, Swarm

MIB: Final = 2**20
KINDS_SHOWN: Final = 3  # of messages, those with the most bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A figure of a row, and what it should be below."""

    figure: str
    below: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One step.

    Attributes:
        units: So many of `unit`, for the cost of each.
        seconds: From its begin until it was done.
        figures: Of the master: see `Measured.row`.
        more: What else is known of this step.
    """

    scenario: str
    step: str
    units: int
    unit: str
    seconds: float
    figures: dict[str, float]
    wire: dict[str, float] = field(default_factory=dict)
    more: dict[str, float] = field(default_factory=dict)
    wanted: tuple[Wanted, ...] = ()
    load: float = 0.0

    @property
    def values(self) -> dict[str, float]:
        return {"seconds": self.seconds, **self.figures, **self.more}

    @property
    def missed(self) -> list[str]:
        """What is wanted and is not so, in words."""
        return [
            f"{self.scenario}, {self.step}: {w.figure} {self.values[w.figure]:,.2f}, wanted below {w.below:g}"
            for w in self.wanted
            if not self.values[w.figure] < w.below
        ]

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        return {
            "benchmark": "scale",
            "scenario": self.scenario,
            "step": self.step,
            self.unit: self.units,
            "seconds": round(self.seconds, 3),
            **{name: round(value, 3) for name, value in (self.figures | self.more).items()},
            "wire_mb": {name: round(value, 3) for name, value in self.wire.items()},
            "wanted": {w.figure: w.below for w in self.wanted},
            "kept": not self.missed,
            "load": round(self.load, 2),
            "cores": os.cpu_count(),
        }


class Measured:
    """From its making until `row`: what the master has used.

    Args:
        zookeeper: What ZooKeeper has written so far, if it has the jobs.
    """

    def __init__(self, master: Master, swarm: Swarm, zookeeper: Callable[[], int] = lambda: 0) -> None:
        self._master, self._swarm, self._zookeeper = master, swarm, zookeeper
        self._load = os.getloadavg()[0]
        swarm.forget()
        self._workers_cpu_s = swarm.figures().cpu_s
        master.forget_peak()
        self._before, self._nodes = master.usage(), zookeeper()

    def row(
        self,
        scenario: str,
        step: str,
        units: tuple[int, str],
        seconds: float,
        wanted: Sequence[Wanted] = (),
        **more: float,
    ) -> Row:
        """The row of what was done since. Its figures: seconds of processor time of the master and of the
        simulated workers, MiB of memory (grown by, at the end, at most), threads, open files, changes in the
        stores, MiB on the wire."""
        after, seen = self._master.usage(), self._swarm.figures()
        if seen.failures:
            raise SystemExit(
                f"{scenario}, {step}: not all went well, so nothing was measured: {seen.failures}"
            )
        before = self._before
        figures = {
            "cpu_s": after["cpu_s"] - before["cpu_s"],
            "core_share": (after["cpu_s"] - before["cpu_s"]) / max(seconds, 1e-9),
            "workers_cpu_s": seen.cpu_s - self._workers_cpu_s,
            "gc_s": (after["gc_us"] - before["gc_us"]) / 1e6,
            "grown_mb": after["rss_mb"] - before["rss_mb"],
            "peak_mb": after["peak_mb"],
            "threads": after["threads"],
            "files": after["files"],
            "sql_rows": after["sql_rows"] - before["sql_rows"],
            "sql_commits": after["sql_commits"] - before["sql_commits"],
            "ha_writes": after["ha_writes"] - before["ha_writes"] + self._zookeeper() - self._nodes,
        }
        return Row(
            scenario=scenario,
            step=step,
            units=units[0],
            unit=units[1],
            seconds=seconds,
            figures=figures,
            wire=_wire(seen),
            more=more,
            wanted=tuple(wanted),
            load=max(self._load, os.getloadavg()[0]),
        )


def _wire(seen: Figures) -> dict[str, float]:
    """MiB in both directions, and of the messages that are most of it."""
    totals = {name: seen.bytes[name] / MIB for name in ("to workers", "to master")}
    kinds = [(name, count) for name, count in seen.bytes.most_common() if ":" in name]
    return totals | {name: count / MIB for name, count in kinds[:KINDS_SHOWN]}


# --- for people ---------------------------------------------------------------------------------------


class Screen(Protocol):
    """Says what is being waited for."""

    def step(self, what: str, total: int, done: Callable[[], int]) -> Callable[[], bool]:
        """A condition for `await_that`: `done` has reached `total`. Shows how far it is."""


class Bars:
    """A bar for each step on stderr, as long as that is a terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def step(self, what: str, total: int, done: Callable[[], int]) -> Callable[[], bool]:
        """See `Screen`."""
        for known in self._progress.task_ids:
            self._progress.remove_task(known)
        task = self._progress.add_task(what, total=total)

        def reached() -> bool:
            now = done()
            self._progress.update(task, completed=min(now, total))
            return now >= total

        return reached


@contextmanager
def bars() -> Iterator[Bars]:
    """Bars until the end of the context."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        yield Bars(progress)


def table(rows: Sequence[Row]) -> Table:
    """All rows, with what each unit has cost."""
    shown = Table(title="What one master costs", caption=_caption(rows), title_justify="left")
    shown.add_column("scenario, step", overflow="fold")
    names = (
        "units",
        "s",
        "CPU s",
        "cores",
        "peak MiB",
        "CPU ms each",
        "KiB wire each",
        "SQL rows",
        "HA writes",
    )
    for name in (*names, "as wanted"):
        shown.add_column(name, justify="right")
    for row in rows:
        found = row.figures
        wire = (row.wire.get("to workers", 0) + row.wire.get("to master", 0)) * 1024 / row.units
        shown.add_row(
            f"{row.scenario}: {row.step}",
            f"{row.units:,} {row.unit}",
            f"{row.seconds:,.1f}",
            f"{found['cpu_s']:,.1f}",
            f"{found['core_share']:.2f}",
            f"{found['peak_mb']:,.0f}",
            f"{1000 * found['cpu_s'] / row.units:,.2f}",
            f"{wire:,.2f}",
            f"{found['sql_rows']:,.0f}",
            f"{found['ha_writes']:,.0f}",
            "" if not row.wanted else "no" if row.missed else "yes",
        )
    return shown


def _caption(rows: Sequence[Row]) -> str:
    load = max((row.load for row in rows), default=0.0)
    return (
        f"{os.cpu_count()} cores, shared by the master, the simulated workers and whatever else ran: "
        f"load up to {load:.1f}. CPU s: of the master alone"
    )
