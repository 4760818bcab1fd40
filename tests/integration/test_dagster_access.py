"""Dagster and a cluster that wants tokens and speaks TLS, of which this process knows nothing but what the
resource says; and a sensor that calls somebody when a job fails there."""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import dagster as dg
import pytest

from tests.integration.crash_runs import Command, commands_in
from tests.integration.test_cluster_sessions import Start, begin
from tests.integration.test_dagster_runs import (  # noqa: F401 - fixtures
    NO_RESTART,
    assets,
    instance,
)
from unistream.base.errors import ConfigError
from unistream.client.machine import tokens
from unistream.client.machine.tokens import GivenAccess, give_access, token_for
from unistream.dagster import FailedJob, UnistreamResource, build_failed_job_sensor

SECURED = ("-D", "security.rest.authentication=token", "-D", "security.ssl.rest.enabled=true")
TOKEN = f"unistream_{'0' * 12}_{'a' * 64}"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with commands_in(tmp_path) as start:
        yield start


@pytest.fixture
def cluster(start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Command, str]:
    """A cluster, and its URL; its token is in JOBS_TOKEN. The home of this process has no entry of it."""
    running, said = begin(start, *SECURED)
    made = start("token", "create", "dagster", "--scope", "submit")
    assert made.wait() == 0, made.err
    monkeypatch.setenv("JOBS_TOKEN", made.out.strip())
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "elsewhere"))
    monkeypatch.setattr(tokens, "_given", {})
    return running, said["url"]


def resource_at(url: str, token: str) -> UnistreamResource:
    return UnistreamResource(
        target="remote",
        jobmanager=url,
        token=token,
        config=NO_RESTART["resources"]["unistream"]["config"]["config"],
    )


def test_a_run_presents_the_token_of_its_resource(
    assets: ModuleType,  # noqa: F811
    instance: dg.DagsterInstance,  # noqa: F811
    cluster: tuple[Command, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Neither Dagster's events nor the job have it."""
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "elsewhere"))
    resource = resource_at(cluster[1], dg.EnvVar("JOBS_TOKEN"))
    result = dg.materialize(
        [assets.numbers], resources={"unistream": resource}, instance=instance, raise_on_error=False
    )
    assert result.success
    secret = os.environ["JOBS_TOKEN"]
    said = [f"{entry.user_message} {entry}" for entry in instance.all_logs(result.run_id)]
    assert said
    assert not [text for text in said if secret in text]
    for folder in (tmp_path / "home", tmp_path / "dagster"):
        assert not [
            path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()
        ]


def test_somebody_is_called_for_each_job_that_fails(
    assets: ModuleType,  # noqa: F811
    instance: dg.DagsterInstance,  # noqa: F811
    cluster: tuple[Command, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Once; and again if that could not be done. A cluster that is away says nothing."""
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "elsewhere"))
    running, url = cluster
    called: list[FailedJob] = []
    fails = [True]

    def call(failed: FailedJob) -> None:
        called.append(failed)
        if fails[0]:
            raise OSError("the pager is away")

    sensor = build_failed_job_sensor(call)
    resource = resource_at(url, dg.EnvVar("JOBS_TOKEN"))
    cursor: str | None = None

    def tick() -> str | None:
        nonlocal cursor
        resources = {"unistream": resource}
        with dg.build_sensor_context(instance=instance, cursor=cursor, resources=resources) as context:
            said = sensor.evaluate_tick(context)
        cursor = said.cursor
        return said.skip_message

    assert tick() == "no job has failed"
    failed = dg.materialize(
        [assets.failing], resources={"unistream": resource}, instance=instance, raise_on_error=False
    )
    assert not failed.success
    with pytest.raises(OSError, match="the pager is away"):
        tick()
    fails[0] = False
    assert tick() == "1 jobs have failed"
    assert tick() == "no job has failed"
    assert [one.name for one in called] == [called[0].name] * 2
    assert called[0].url == url
    assert called[0].why in str(called[0])
    running.process.kill()
    running.process.wait()
    before = cursor
    assert "the jobs are not known now" in str(tick())
    assert cursor == before


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        pytest.param({"token": TOKEN}, "is for the cluster at jobmanager", id="a token for no cluster"),
        pytest.param(
            {"token": dg.EnvVar("JOBS_TOKEN"), "jobmanager": "zookeeper://zk:2181"},
            "name one of the masters",
            id="for several masters",
        ),
        pytest.param({"ca_file": "/ca.pem"}, "ca_file is for the cluster", id="authorities of no cluster"),
        pytest.param(
            {"token": "a token\n", "jobmanager": "https://a:1"}, "is no token", id="a text that is no token"
        ),
    ],
)
def test_what_does_not_go_together_is_found_when_definitions_are_loaded(
    settings: dict[str, str], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        UnistreamResource(target="remote", **settings)


def test_a_token_that_was_given_is_for_one_cluster_and_never_in_plain_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path))
    monkeypatch.setenv("UNISTREAM_TOKEN", "of-the-environment")
    monkeypatch.setattr(tokens, "_given", {})
    give_access("Jobs.example", 8081, GivenAccess(TOKEN))
    assert token_for("https://jobs.example:8081") == TOKEN
    assert token_for("https://jobs.example:8082") == "of-the-environment"
    assert token_for("http://jobs.example:8081") is None
