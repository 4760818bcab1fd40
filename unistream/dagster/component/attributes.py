"""What may be in the attributes of a `defs.yaml`: a model for each function that builds something."""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal

import dagster as dg
from dagster.components.resolved.core_models import (
    DailyPartitionsDefinitionModel,
    HourlyPartitionsDefinitionModel,
    MultiRunBackfillPolicyModel,
    SingleRunBackfillPolicyModel,
    StaticPartitionsDefinitionModel,
    TimeWindowPartitionsDefinitionModel,
    WeeklyPartitionsDefinitionModel,
    resolve_backfill_policy,
    resolve_partitions_def,
)
from pydantic import ConfigDict

from unistream.api.load import load_function
from unistream.dagster.sensor.commit_sensor import EVERY_S
from unistream.dagster.sensor.reconciling import SILENT_AFTER_S, UNLINKED_AFTER_S

PARTITIONS: Final = dg.Resolver(
    resolve_partitions_def,
    model_field_type=HourlyPartitionsDefinitionModel
    | DailyPartitionsDefinitionModel
    | WeeklyPartitionsDefinitionModel
    | TimeWindowPartitionsDefinitionModel
    | StaticPartitionsDefinitionModel,
)
BACKFILL: Final = dg.Resolver(
    resolve_backfill_policy, model_field_type=SingleRunBackfillPolicyModel | MultiRunBackfillPolicyModel
)
"""Backfill policies, in both forms that Dagster's own components read."""


def pipeline_of(context: dg.ResolutionContext, reference: str) -> Callable[..., object]:
    """MODULE:FUNCTION; with a dot first it is next to the file."""
    return load_function(absolute(context, context.resolve_value(reference, as_type=str)))


def absolute(context: dg.ResolutionContext, reference: str) -> str:
    """The whole reference: one that begins with a dot is looked for where the component is."""
    if not reference.startswith("."):
        return reference
    loading = dg.ComponentLoadContext.from_resolution_context(context)
    return f"{loading.defs_relative_module_name(loading.path)}{reference}"


Status = Literal["RUNNING", "STOPPED"]
Severity = Literal["WARN", "ERROR"]


class StopSchedule(dg.Model, dg.Resolvable):
    """Arguments of `build_stop_with_savepoint_schedule`."""

    model_config = ConfigDict(extra="forbid")
    cron_schedule: str
    drain: bool = False
    savepoint_dir: str | None = None
    execution_timezone: str | None = None
    default_status: Status = "STOPPED"


class SavepointSchedule(dg.Model, dg.Resolvable):
    """Arguments of `build_savepoint_schedule`."""

    model_config = ConfigDict(extra="forbid")
    cron_schedule: str
    savepoint_dir: str | None = None
    execution_timezone: str | None = None
    default_status: Status = "STOPPED"


class DrainSchedule(dg.Model, dg.Resolvable):
    """Arguments of `build_drain_and_resume_schedule`. `between`: MODULE:FUNCTION, as `pipeline`."""

    model_config = ConfigDict(extra="forbid")
    cron_schedule: str
    between: Annotated[Callable[..., Any], dg.Resolver(pipeline_of, model_field_type=str)] | None = None
    drain: bool = True
    savepoint_dir: str | None = None
    execution_timezone: str | None = None
    default_status: Status = "STOPPED"


class CommitSensor(dg.Model, dg.Resolvable):
    """Arguments of `build_commit_sensor`."""

    model_config = ConfigDict(extra="forbid")
    minimum_interval_seconds: int = EVERY_S
    default_status: Status = "RUNNING"


class Reconciling(dg.Model, dg.Resolvable):
    """Arguments of `build_reconciling_sensor`."""

    model_config = ConfigDict(extra="forbid")
    silent_after_s: float = SILENT_AFTER_S
    unlinked_after_s: float = UNLINKED_AFTER_S
    default_status: Status = "RUNNING"


class RowCount(dg.Model, dg.Resolvable):
    """Arguments of `build_row_count_check`. `query`: MODULE:FUNCTION, as `pipeline`, without arguments."""

    model_config = ConfigDict(extra="forbid")
    query: Annotated[Callable[..., Any], dg.Resolver(pipeline_of, model_field_type=str)]
    asset: str | None = None
    tolerance: float = 0.0
    severity: Severity = "WARN"


class StreamChecks(dg.Model, dg.Resolvable):
    """Arguments of `build_stream_checks`."""

    model_config = ConfigDict(extra="forbid")
    max_checkpoint_age: str | None = "10 min"
    max_restarts: int | None = None
    max_late_rows: int | None = None
    max_late_ratio: float | None = None
    max_watermark_lag: str | None = None
    max_records_behind: int | None = None
    max_dead_letter_ratio: float | None = None
    severity: Severity | dict[str, Severity] | None = None


def of_schedule(given: StopSchedule | SavepointSchedule) -> dict[str, Any]:
    """Arguments of the function."""
    return {**given.model_dump(), "default_status": dg.DefaultScheduleStatus[given.default_status]}


def severity_of(
    given: Severity | Mapping[str, Severity] | None,
) -> dg.AssetCheckSeverity | Mapping[str, dg.AssetCheckSeverity] | None:
    """The severities as `build_stream_checks` takes them."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        return {name: dg.AssetCheckSeverity[one] for name, one in given.items()}
    return dg.AssetCheckSeverity[given]
