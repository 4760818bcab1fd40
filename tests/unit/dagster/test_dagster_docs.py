"""What the Dagster guide says is true: its code runs, and its instance settings are Dagster's."""

from __future__ import annotations

import doctest
import importlib
import re
import shutil
from pathlib import Path

import dagster as dg
import pytest

from unistream.dagster import UnistreamResource

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "guide" / "dagster.md"


def test_the_guide_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {"__name__": "guide", "LAKE": str(tmp_path)}
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{GUIDE.name}, block {number}", "exec", dont_inherit=True), names)
    written = [value for value in names.values() if isinstance(value, dg.Definitions)]
    assert len(written) >= 4
    for definitions in written:
        dg.Definitions.validate_loadable(definitions)
    assert (
        "1000 rows ['dagster/column_schema', 'dagster/row_count', 'unistream/checkpoints'"
        in capsys.readouterr().out
    )


def test_the_instance_for_streams_is_one_that_dagster_takes(tmp_path: Path) -> None:
    shutil.copy(ROOT / "deployments" / "dagster" / "dagster.yaml", tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.run_retries_enabled
        assert instance.get_settings("run_retries")["retry_on_asset_or_op_failure"] is False
        assert instance.run_monitoring_enabled
        assert instance.run_monitoring_max_resume_run_attempts == 0
        assert instance.get_concurrency_config().pool_config.default_pool_limit == 1
        wait_s = instance.run_monitoring_cancel_timeout_seconds
        instance.run_launcher.dispose()
    assert wait_s > UnistreamResource().terminate_timeout_s + 60


@pytest.mark.parametrize(
    "module",
    ["assets", "attached", "backfill_asset", "backfill_command", "lines", "resource", "silence", "watching"],
)
def test_examples_in_docstrings_run(module: str) -> None:
    outcome = doctest.testmod(importlib.import_module(f"unistream.dagster.{module}"))
    assert outcome.attempted > 0
    assert outcome.failed == 0
