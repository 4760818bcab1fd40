"""A Dagster run whose job is on a cluster of several masters outlives the one that leads."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from types import ModuleType

import dagster as dg
from deltalake import DeltaTable

from tests.eventually import WAIT_S, eventually
from tests.integration.crash_runs import Command, commands_in
from tests.integration.test_dagster_runs import (  # noqa: F401 - fixtures
    ROWS,
    assets,
    failure_of,
    instance,
)
from tests.integration.zookeeper_leaders import new_cluster
from unistream.base.config import Configuration
from unistream.client.job.submission import connect
from unistream.client.machine.background import in_background
from unistream.client.remote.address import options_of
from unistream.client.remote.rest_client import RestClient


def test_a_run_goes_on_when_the_leader_is_killed(
    assets: ModuleType,  # noqa: F811
    instance: dg.DagsterInstance,  # noqa: F811
    zookeeper: str,
    tmp_path: Path,
) -> None:
    cluster = {
        **options_of(f"zookeeper://{zookeeper}"),
        "high-availability.cluster-id": new_cluster(),
        "high-availability.zookeeper.client.session-timeout": "3 s",
    }
    options = {**cluster, "high-availability.storageDir": str(tmp_path / "ha")}
    words = [text for key, value in options.items() for text in ("-D", f"{key}={value}")]
    with commands_in(tmp_path) as start, connect(Configuration(cluster)) as client:
        masters: list[Command] = []
        for name in ("a", "b"):
            command = start("cluster", "start", "-t", "local", "--json", "--workdir", name, *words)
            assert "contends" in json.loads(command.line())
            masters.append(command)
        killed = in_background(lambda: kill_leader(client, masters), "kill")
        config = {
            **cluster,
            "execution.runtime-mode": "STREAMING",
            "execution.checkpointing.interval": "300 ms",
        }
        resource = assets.UnistreamResource(
            target="remote", jobmanager=f"zookeeper://{zookeeper}", config=config
        )
        result = dg.materialize(
            [assets.numbers], resources={"unistream": resource}, instance=instance, raise_on_error=False
        )
        assert killed.result(WAIT_S) == -signal.SIGKILL
        assert result.success, failure_of(result)
        [job] = client.jobs()
    assert job.state == "FINISHED"
    assert job.job == instance.get_run_by_id(result.run_id).tags["unistream/job_id"]
    ids = DeltaTable(str(tmp_path / "lake" / "rows")).to_pyarrow_table()["id"].to_pylist()
    assert sorted(ids) == list(range(ROWS))


def kill_leader(client: RestClient, masters: list[Command]) -> int:
    """When its job has a checkpoint; the exit code."""

    def has_checkpoint() -> bool:
        return any(client.info(job.job).checkpoints_completed >= 1 for job in client.jobs())

    eventually(has_checkpoint, "a checkpoint is complete", WAIT_S)
    leading = [master for master in masters if master.family()]
    assert len(leading) == 1, "a standby has no workers"
    return leading[0].end(signal.SIGKILL)


def test_an_address_is_of_a_cluster_that_runs(assets: ModuleType, instance: dg.DagsterInstance) -> None:  # noqa: F811
    resource = assets.UnistreamResource(target="local", jobmanager="127.0.0.1:8081")
    result = dg.materialize(
        [assets.numbers], resources={"unistream": resource}, instance=instance, raise_on_error=False
    )
    assert "names a running cluster, and target 'local' starts one" in failure_of(result)[1]
