"""`unistream taskmanager memory`: how a configuration divides the memory of a worker."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from unistream.base.config import TASK_SLOTS
from unistream.cli.options import AsJson, Defines, configuration
from unistream.cli.output import console, print_json
from unistream.core.memory import describe_bytes, memory_plan


def memory(
    slots: Annotated[int | None, typer.Option("--slots", min=1, help="Task slots of the worker.")] = None,
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Show how the memory of a worker is divided, as configured."""
    config = configuration(defines)
    plan = memory_plan(config, config.get(TASK_SLOTS) if slots is None else slots)
    if as_json:
        print_json({part: {"bytes": size, "bytes_per_slot": share} for part, size, share in plan.rows()})
        return
    table = Table("part", "worker", f"slot (of {plan.slots})")
    for part, size, share in plan.rows():
        table.add_row(part, describe_bytes(size), describe_bytes(share) if share else "")
    console().print(table)
