"""What a task of Spark says of an executor that cannot have a worker of the cluster."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from unistream import __version__
from unistream.base.errors import ConfigError
from unistream.host.spark_errors import unusable_python
from unistream.host.spark_executor import check_reach, check_version
from unistream.net.address import SocketFolder


def test_an_executor_with_another_release_is_named() -> None:
    check_version("node-1", __version__)
    with pytest.raises(
        ConfigError, match=r"node-1: its Python, .*, has unistream .*install unistream 99\.7\.\*"
    ):
        check_version("node-1", "99.7.1")


def test_an_executor_that_does_not_reach_the_job_manager_is_named(tmp_path: Path) -> None:
    folder = SocketFolder(None)
    try:
        with pytest.raises(ConfigError, match=r"node-1: .*jobmanager\.bind-host.*jobmanager\.rpc\.address"):
            check_reach("node-1", f"grpc+unix://{folder.socket_path}")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(folder.socket_path)
            server.listen()
            check_reach("node-1", f"grpc+unix://{folder.socket_path}")
    finally:
        folder.close()
    check_reach("node-1", "grpc+tls://jobmanager@10.0.0.1:6123")


def test_what_it_says_is_found_in_what_spark_makes_of_it() -> None:
    """And is the reason why no worker can start."""
    said = "no worker of this cluster can run on node-1: the JobManager listens, and so on"
    text = (
        "Job aborted due to stage failure: Lost task 0.0 in stage 1.0 (TID 1) (node-1 executor 0): "
        f"Traceback (most recent call last):\n  File x\nunistream.base.errors.ConfigError: {said}\n\n\tat org"
    )
    assert unusable_python(text, "python3") == said
