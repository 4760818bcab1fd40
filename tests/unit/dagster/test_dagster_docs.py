"""The instance settings that we ship are Dagster's, and examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib
import shutil
from pathlib import Path

import dagster as dg
import pytest

from unistream.dagster import UnistreamResource

ROOT = Path(__file__).parents[3]


def test_the_instance_for_streams_is_one_that_dagster_takes(tmp_path: Path) -> None:
    shutil.copy(ROOT / "deployments" / "dagster" / "dagster.yaml", tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.run_retries_enabled
        assert instance.get_settings("run_retries")["retry_on_asset_or_op_failure"] is False
        assert instance.run_monitoring_enabled
        assert instance.run_monitoring_max_resume_run_attempts == 0
        assert instance.get_concurrency_config().pool_config.default_pool_limit == 1
        assert not instance.nux_enabled
        wait_s = instance.run_monitoring_cancel_timeout_seconds
        instance.run_launcher.dispose()
    assert wait_s > UnistreamResource().terminate_timeout_s + 60


@pytest.mark.parametrize(
    "module",
    [
        "operation.backfill_asset",
        "operation.backfill_command",
        "run.assets",
        "run.attached",
        "run.lines",
        "run.metadata",
        "run.policy_tag",
        "run.resource",
        "run.settings",
        "run.watching",
        "sensor.following",
        "sensor.judging",
        "sensor.silence",
    ],
)
def test_examples_in_docstrings_run(module: str) -> None:
    outcome = doctest.testmod(importlib.import_module(f"unistream.dagster.{module}"))
    assert outcome.attempted > 0
    assert outcome.failed == 0
