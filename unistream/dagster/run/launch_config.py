"""What a run may set for itself when it is launched: the config of its step.

In the launchpad the whole of a resource has to be written, since what is left out there gets the default of
its class. Of the step only what differs is written. A step whose function has a config of its own has none of
this.
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

import dagster as dg

from unistream.dagster.run.attached import OnTerminate
from unistream.dagster.run.start import OnRunning

MODES: Final = ("auto", "attached", "detached")


def _choice(name: str, values: tuple[str, ...], text: str) -> dg.Field:
    return dg.Field(dg.Enum(name, list(map(dg.EnumValue, values))), is_required=False, description=text)


FIELDS: Final = {
    "resume": dg.Field(
        dg.StringSource,
        is_required=False,
        description="What a new job starts from: 'latest', 'none', or the directory of a snapshot",
    ),
    "on_running": _choice(
        "UnistreamOnRunning", get_args(OnRunning), "What the run does if a job writes the same tables"
    ),
    "mode": _choice("UnistreamMode", MODES, "How long the run lasts: as long as its job, or not"),
    "on_terminate": _choice(
        "UnistreamOnTerminate", get_args(OnTerminate), "How a terminated run ends its job"
    ),
    "config": dg.Field(dict, is_required=False, description="Configuration by key, on top of the resource's"),
}
"""The settings of `UnistreamResource` that a run may set."""


def launch_options(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `dg.multi_asset` for a step. Empty: the step has a config of its own."""
    if "config_schema" in options or "config" in inspect.signature(function).parameters:
        return {}
    return {"config_schema": FIELDS}


def launched_with(context: dg.AssetExecutionContext) -> dict[str, Any]:
    """Settings of the resource that the run was launched with."""
    step = context.op_execution_context
    schema = step.op_def.config_schema.as_field().config_type
    is_ours = getattr(schema, "fields", {}).keys() == FIELDS.keys()
    return dict(step.op_config or {}) if is_ours else {}
