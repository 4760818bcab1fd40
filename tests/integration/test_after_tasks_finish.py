"""Checkpoints of a job of which one source has ended: taken, or switched off."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.modes import STREAMING
from unistream.base.errors import ConfigError
from unistream.model.job_info import JobInfo
from unistream.testing.mini_cluster import MiniCluster

OFF = {"execution.checkpointing.checkpoints-after-tasks-finish": "false"}


def two_sources(config: Mapping[str, str]) -> tuple:
    """One ends after ten rows, one never."""
    env = us.Environment({**STREAMING, "execution.checkpointing.interval": "50 ms", **config})
    numbers = {"n": us.datagen.Sequential()}
    for name, rows in (("short", 10), ("long", None)):
        source = us.DatagenSource(
            numbers, rows=rows, rows_per_second=None if rows else 100, bounded=rows is not None
        )
        stream = env.from_source(source, us.WatermarkStrategy.no_watermarks(), name).uid(name)
        stream.sink_to(us.BlackholeSink()).uid(f"{name} out")
    return env.job_graph("two sources")


def short_has_ended(info: JobInfo) -> bool:
    states = {s.state for s in info.subtasks if s.vertex_name.startswith("short")}
    return states == {"FINISHED"}


def test_a_job_goes_on_with_checkpoints_when_one_of_its_tasks_has_finished(tmp_path: Path) -> None:
    with MiniCluster(2, 2, workdir=tmp_path / "cluster") as cluster:
        job = cluster.submit(*two_sources({}))
        taken = job.wait_for(short_has_ended, WAIT_S).checkpoints_completed
        job.wait_for(lambda info: info.checkpoints_completed > taken, WAIT_S)
        assert job.savepoint()


def test_switched_off_there_is_none_after_a_task_has_finished(tmp_path: Path) -> None:
    with MiniCluster(2, 2, workdir=tmp_path / "cluster") as cluster:
        job = cluster.submit(*two_sources(OFF))
        job.wait_for(short_has_ended, WAIT_S)
        with pytest.raises(ConfigError, match="not all tasks are running"):
            job.savepoint()
        assert job.status().state == "RUNNING"
