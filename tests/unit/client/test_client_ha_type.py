"""Folders of a cluster of one master and of one of several masters are not mistaken for each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.left_jobs import LeftJobs
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.embedded.ha_type import MARK, check_several, check_single, join_several, leave_several

GOES_ON = "unistream cluster start -t local -D high-availability.type=zookeeper"
CHECKPOINT = "file:///data/checkpoints/chk-7"


def joins(folder: Path) -> None:
    check_several(folder, "local")
    join_several(folder, GOES_ON)


def test_jobs_of_one_master_are_named_with_what_to_do(tmp_path: Path) -> None:
    left = LeftJobs(tmp_path / "my work")
    lines, orders = left.add("lines", CHECKPOINT), left.add("orders")
    with pytest.raises(ConfigError) as refused:
        joins(tmp_path / "my work")
    said = str(refused.value)
    assert f"'lines' ({lines}, newest checkpoint {CHECKPOINT}), 'orders' ({orders}, no checkpoint);" in said
    assert "2 unfinished job(s)" in said
    assert f"cluster start -t local --workdir '{tmp_path}/my work'" in said
    assert "'unistream cluster stop --savepoint'" in said
    assert "'unistream run -s'" in said
    assert not (tmp_path / "my work" / MARK).exists()
    check_single(tmp_path / "my work")
    left.end(lines)
    left.end(orders)
    joins(tmp_path / "my work")


def test_of_many_jobs_the_first_ones_are_named(tmp_path: Path) -> None:
    left = LeftJobs(tmp_path)
    for name in "abcde":
        left.add(name)
    with pytest.raises(ConfigError, match=r"5 unfinished job.*'c' \(c+, no checkpoint\) and 2 more; "):
        joins(tmp_path)


def test_jobs_that_cannot_be_read_are_not_passed_over(tmp_path: Path) -> None:
    job = LeftJobs(tmp_path).add("lines")
    (tmp_path / "ha" / "values" / "jobs" / job / "job" / ".value").write_bytes(b"?")
    with pytest.raises(CorruptSnapshot, match="not written by unistream"):
        joins(tmp_path)


def test_the_folder_of_one_of_several_masters_is_refused_with_what_to_do(tmp_path: Path) -> None:
    for _ in range(2):
        joins(tmp_path)
    with pytest.raises(ConfigError) as refused:
        check_single(tmp_path)
    said = str(refused.value)
    assert f"'{GOES_ON} --workdir {tmp_path}' goes on with them" in said
    assert f"remove {tmp_path / MARK}" in said
    with pytest.raises(ConfigError, match="is the folder of one of several masters"):
        EmbeddedCluster("local", Configuration({}), workdir=tmp_path, rest=False)


def test_a_leader_without_jobs_leaves_its_folder_to_any_cluster(tmp_path: Path) -> None:
    jobs = LeftJobs(tmp_path / "of the cluster")
    job = jobs.add("lines")
    joins(tmp_path)
    leave_several(tmp_path, jobs.jobs)
    with pytest.raises(ConfigError):
        check_single(tmp_path)
    jobs.end(job)
    leave_several(tmp_path, jobs.jobs)
    check_single(tmp_path)
    leave_several(tmp_path, jobs.jobs)
