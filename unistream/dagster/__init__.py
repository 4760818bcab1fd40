"""Pipelines as Dagster assets: a resource that runs them and a decorator that declares their tables."""

# ruff: noqa: E402  (the refusal comes before what it is about is imported)

from __future__ import annotations

from unistream import __version__
from unistream.base.extras import require

require("dagster", "unistream.dagster")

from dagster_shared.libraries import DagsterLibraryRegistry

from unistream.dagster.component.component import UnistreamJobComponent
from unistream.dagster.operation.backfill_asset import build_backfill_asset
from unistream.dagster.operation.drain_resume import build_drain_and_resume_schedule
from unistream.dagster.operation.operations import (
    build_savepoint_schedule,
    build_stop_with_savepoint_schedule,
)
from unistream.dagster.run.assets import sink_asset, unistream_assets
from unistream.dagster.run.resource import UnistreamResource
from unistream.dagster.run.translator import (
    CheckTranslatorData,
    SinkTranslatorData,
    SourceTranslatorData,
    UnistreamTranslator,
    build_source_asset_specs,
    build_unistream_asset_specs,
)
from unistream.dagster.sensor.checks import build_row_count_check, build_stream_checks
from unistream.dagster.sensor.commit_sensor import build_commit_sensor
from unistream.dagster.sensor.failures import FailedJob, build_failed_job_sensor
from unistream.dagster.sensor.reconciling import build_reconciling_sensor

__all__ = [
    "CheckTranslatorData",
    "FailedJob",
    "SinkTranslatorData",
    "SourceTranslatorData",
    "UnistreamJobComponent",
    "UnistreamResource",
    "UnistreamTranslator",
    "build_backfill_asset",
    "build_commit_sensor",
    "build_drain_and_resume_schedule",
    "build_failed_job_sensor",
    "build_reconciling_sensor",
    "build_row_count_check",
    "build_savepoint_schedule",
    "build_source_asset_specs",
    "build_stop_with_savepoint_schedule",
    "build_stream_checks",
    "build_unistream_asset_specs",
    "sink_asset",
    "unistream_assets",
]

DagsterLibraryRegistry.register("dagster-unistream", __version__, is_dagster_package=False)
