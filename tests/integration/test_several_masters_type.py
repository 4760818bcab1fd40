"""A cluster is started again with another `high-availability.type`: no job stops to exist without a word."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.integration.several_masters import WAIT_S, Masters, masters_in
from tests.left_jobs import LeftJobs


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: str) -> Iterator[Masters]:
    with masters_in(tmp_path, zookeeper) as cluster:
        yield cluster


def alone(cluster: Masters) -> dict[str, str | None]:
    """Without all options of several masters."""
    return {key.replace(".", "_"): None for key in cluster.options}


def test_jobs_of_one_master_are_not_passed_over_by_several(cluster: Masters, tmp_path: Path) -> None:
    left = LeftJobs(tmp_path / "work-first")
    job = left.add("lines", "file:///data/chk-7")
    said = cluster.refused("first")
    assert said.startswith(
        f"error: {tmp_path / 'work-first'} has 1 unfinished job(s) of a cluster of one master"
    )
    assert f"'lines' ({job}, newest checkpoint file:///data/chk-7)" in said
    assert "'unistream cluster stop --savepoint'" in said
    left.end(job)
    cluster.await_leader(cluster.start("first"))


def test_jobs_of_several_masters_are_not_passed_over_by_one(cluster: Masters, tmp_path: Path) -> None:
    first, second = cluster.pair()
    for name, master in (("first", first), ("second", second)):
        master.end(signal.SIGKILL)
        said = cluster.refused(f"{name}-alone", workdir=str(tmp_path / f"work-{name}"), **alone(cluster))
        assert said.startswith(f"error: {tmp_path / f'work-{name}'} is the folder of one of several masters")
        assert f"high-availability.zookeeper.quorum={cluster.quorum}" in said
        assert f"high-availability.cluster-id={cluster.id}" in said
        assert f"--workdir {tmp_path / f'work-{name}'}' goes on with them" in said
    again = cluster.start("first-again", workdir=str(tmp_path / "work-first"))
    cluster.await_leader(again)
    assert again.end() == 0
    single = cluster.start("single", workdir=str(tmp_path / "work-first"), **alone(cluster))
    eventually(
        lambda: bool(single.urls), "no job was left, so a cluster of one master has the folder", WAIT_S
    )
