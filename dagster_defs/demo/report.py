"""What the demo found, and how it says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

import dagster as dg
from rich.console import Console
from rich.table import Table

from dagster_defs.demo.compare import Difference, compare
from dagster_defs.demo.data import cancelled_truth, hourly_truth
from dagster_defs.demo.processes import DemoError
from dagster_defs.tables import read_table
from unistream.dagster.run.metadata import schema_text

ASSETS: Final = ("flights_hourly", "flights_cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """The two tables against the truth."""

    events: int
    hourly: Difference
    cancelled: Difference
    restarts: int

    @property
    def is_ok(self) -> bool:
        return self.hourly.is_none and self.cancelled.is_none and self.restarts > 0

    @property
    def last_line(self) -> str:
        if not self.is_ok:
            return f"demo FAILED: hourly {self.hourly}; cancelled {self.cancelled}; {self.restarts} restarts"
        rows = self.hourly.rows + self.cancelled.rows
        return (
            f"demo ok: {self.events} events, {rows} result rows, "
            f"0 lost, 0 duplicated, {self.restarts} restarts"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Seconds of the run, and what Dagster recorded with the asset."""

    target: str
    up_s: float
    recovery_s: float
    total_s: float
    asset: Mapping[str, object]


def judge(
    lake: Path, dagster_home: Path, *, repeat: int, events: int, since: date
) -> tuple[DemoReport, Mapping[str, object]]:
    """Compares both tables row by row, and reads the asset's metadata from Dagster's event log."""
    hourly = compare(
        read_table(str(lake / ASSETS[0])).rename_columns({"name": "airline"}),
        hourly_truth(repeat=repeat, since=since),
        keys=["origin", "carrier", "window_start"],
        values=["airline", "flights", "delay_mean", "delay_max"],
    )
    cancelled = compare(
        read_table(str(lake / ASSETS[1])),
        cancelled_truth(repeat=repeat, since=since),
        keys=["origin", "window_start"],
        values=["flights"],
    )
    metadata = _asset_metadata(dagster_home)
    restarts = int(str(metadata["unistream/restarts"]))
    return DemoReport(events=events, hourly=hourly, cancelled=cancelled, restarts=restarts), metadata


def _asset_metadata(dagster_home: Path) -> Mapping[str, object]:
    with dg.DagsterInstance.from_config(str(dagster_home)) as instance:
        event = instance.get_latest_materialization_event(dg.AssetKey(ASSETS[0]))
    if event is None or event.asset_materialization is None:
        raise DemoError(f"the run ended without a materialisation of {ASSETS[0]}")
    metadata = event.asset_materialization.metadata
    return {name: shown(value.value) for name, value in metadata.items()}


def shown(value: object) -> object:
    """A table's columns as a line of text."""
    return schema_text(value) if isinstance(value, dg.TableSchema) else value


def print_figures(console: Console, report: DemoReport, figures: Figures) -> None:
    """A table for people."""
    table = Table(title="one pipeline, one kill, one truth", show_header=False)
    for name, value in (
        ("workers ran in", "Spark tasks" if figures.target == "spark" else "child processes"),
        ("start to running job", f"{figures.up_s:.1f} s"),
        ("SIGKILL to running again", f"{figures.recovery_s:.1f} s"),
        ("whole demo", f"{figures.total_s:.1f} s"),
        ("flights published", f"{report.events:,}"),
        (ASSETS[0], str(report.hourly)),
        (ASSETS[1], str(report.cancelled)),
        *((name, str(value)) for name, value in figures.asset.items()),
    ):
        table.add_row(name, value)
    console.print(table)
