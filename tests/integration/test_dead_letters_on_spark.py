"""Rows that operators cannot process, in a BATCH job that Spark runs: each is a letter, once."""

from __future__ import annotations

from pathlib import Path

import pytest

import unistream as us
from tests.integration.failing_rows import check, counts, failing

pytestmark = [pytest.mark.spark]


def test_a_batch_job_on_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    config = {"spark.master": "local[2]", "parallelism.default": "2", "execution.runtime-mode": "BATCH"}
    env = us.Environment(config, target="spark")
    failing(env, tmp_path / "lake")
    with env.execute_async("failing") as job:
        result = job.result()
        info = job.status()
    assert (result.state, info.engine) == ("FINISHED", "spark")
    check(tmp_path / "lake")
    assert result.dead_letters == counts()
