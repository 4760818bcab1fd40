"""Canaries: secrets planted wherever a user can write one must be found in nothing that a person reads."""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import httpx
import pytest

import unistream as us
from tests.asking import as_owner
from tests.eventually import WAIT_S
from tests.integration.cli_terminal import Terminal
from tests.integration.kafka_rows import fill
from tests.walked import walked
from unistream.dagster import UnistreamResource, sink_asset, unistream_assets

pytestmark = [pytest.mark.kafka]

CANARIES = {
    name: f"canary-{name.lower()}-5f1e" for name in ("LITERAL", "TYPED", "REFERRED", "STORAGE", "FILES")
}
PIPELINE = """
import os
import pyarrow as pa
import unistream as us

SCHEMA = pa.schema([("i", pa.int64())])

def flights(env, bootstrap, **more):
    source = us.KafkaSource(
        bootstrap_servers=bootstrap, topic=os.environ["TOPIC"], schema=SCHEMA,
        properties={
            "sasl.plain.password": os.environ["LITERAL"],
            "ssl.password": us.Secret(os.environ["TYPED"]),
            "sasl.oauth.token.provider": "${env:REFERRED}",
            **more,
        },
    )
    return env.from_source(source, us.WatermarkStrategy.no_watermarks(), "flights").uid("flights")

def table():
    secret = us.Secret(os.environ["FILES"])
    return us.DeltaSink(
        "table",
        storage_options={"AWS_SECRET_ACCESS_KEY": os.environ["STORAGE"]},
        filesystem_options={"nickname": secret},
    )

def good(env):
    names = us.FileSource(
        "names.json", format="json", schema=SCHEMA,
        options={"token": os.environ["LITERAL"], "nickname": us.Secret(os.environ["TYPED"])},
    )
    side = env.from_source(names, us.WatermarkStrategy.no_watermarks(), "names").uid("names")
    flights(env, os.environ["BOOTSTRAP"]).union(side).sink_to(table()).uid("table")

def unreachable(env):
    flights(env, "127.0.0.1:1", **{"bootstrap.timeout.ms": "500"}).sink_to(table()).uid("table")

def mistyped(env):
    flights(env, os.environ["BOOTSTRAP"], **{"sasl.kerberos.service.nam": os.environ["LITERAL"]})

def failing(env):
    flights(env, os.environ["BOOTSTRAP"]).map(lambda row: 1 / 0).sink_to(table()).uid("table")
"""


@pytest.fixture
def terminal(kafka: str, topic: str, tmp_path: Path) -> Iterator[Terminal]:
    fill(kafka, topic, range(100))
    (tmp_path / "names.json").write_text('{"i": 1000}\n')
    made = Terminal(tmp_path, PIPELINE, BOOTSTRAP=kafka, TOPIC=topic, **CANARIES)
    yield made
    for process in made.processes():  # only after a failure
        process.kill()


def leaks(what: str, text: str | bytes) -> list[str]:
    content = text.encode() if isinstance(text, str) else text
    return [f"{name} in {what}" for name, canary in CANARIES.items() if canary.encode() in content]


def leaks_in_files(folder: Path) -> list[str]:
    """Everything but the packed code, which only the job's workers open."""
    files = [path for path in walked(folder) if path.is_file() and "artifacts" not in path.parts]
    assert files
    return [leak for path in files for leak in leaks(str(path), path.read_bytes())]


def leaks_in_rest(url: str, job: str) -> list[str]:
    """Every GET that the API describes, for this job."""
    found, asked = [], 0
    with httpx.Client(base_url=url, headers=as_owner(url), trust_env=False, timeout=WAIT_S) as client:
        for path, methods in client.get("/openapi.json").json()["paths"].items():
            if "get" in methods:
                worker = client.get("/taskmanagers").raise_for_status().json()["taskmanagers"][0]["id"]
                target = path.replace("{id_}", worker if "taskmanagers" in path else job)
                answer = client.get(target.replace("{trigger}", "0" * 32))
                found += leaks(f"GET {path}", answer.content)
                asked += answer.status_code == 200
    assert asked >= 10
    return found


def test_nothing_of_a_running_job_shows_a_secret(terminal: Terminal, tmp_path: Path) -> None:
    started = terminal.run("good", "local", "-v")
    table = tmp_path / "table" / "_delta_log"
    terminal.until(lambda: len(list(table.glob("*.json"))) >= 2, "a commit, with secrets that were resolved")
    found = leaks_in_rest(started["url"], started["job"])
    for words in (["info", started["job"], "--json"], ["info", started["job"]], ["list", "--json"]):
        done = terminal(*words)
        found += leaks(f"unistream {words[0]}", done.stdout + done.stderr)
    commands = [" ".join(process.cmdline()) for process in terminal.processes()]
    assert len(commands) >= 2
    found += leaks("command lines", "\n".join(commands))
    terminal("savepoint", started["job"], "-p", str(tmp_path / "savepoints"))
    found += leaks_in_files(tmp_path)  # metadata, checkpoints and logs as they are
    terminal("stop", started["job"], "-p", str(tmp_path / "savepoints"))
    terminal.until_nothing_is_left()
    found += leaks_in_files(tmp_path)
    assert "event=job_accepted" in Path(started["log"]).read_text(), "the log says what happens"
    assert found == []


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ("unreachable", "127.0.0.1:1 did not answer"),
        ("mistyped", "unknown Kafka property 'sasl.kerberos.service.nam'"),
        ("failing", "ZeroDivisionError"),
    ],
)
def test_no_error_shows_a_secret(terminal: Terminal, tmp_path: Path, function: str, text: str) -> None:
    command = ["run", f"pipeline:{function}", "-t", "local", "-v", "-D", "restart-strategy.type=none"]
    done = terminal(*command, code=None)
    assert text in done.stderr
    assert done.returncode != 0
    assert leaks("output", done.stdout + done.stderr) == []
    assert leaks_in_files(tmp_path) == []


def test_dagster_stores_no_secret(
    kafka: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(kafka, topic, range(10))
    folder = tmp_path / "dagster"
    folder.mkdir()
    (folder / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    for name, value in {**CANARIES, "BOOTSTRAP": kafka, "TOPIC": topic}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    pipeline: dict[str, Any] = {"__name__": "pipeline"}
    exec(PIPELINE, pipeline)

    @unistream_assets(specs=[sink_asset("table", sink_uid="table")])
    def failing(
        context: dg.AssetExecutionContext, unistream: UnistreamResource
    ) -> Iterator[dg.MaterializeResult[Any]]:
        yield from unistream.run(context, pipeline["failing"], config={"restart-strategy.type": "none"})

    with dg.DagsterInstance.get() as instance:
        done = dg.materialize(
            [failing],
            resources={"unistream": UnistreamResource(target="local")},
            instance=instance,
            raise_on_error=False,
        )
        assert not done.success
        events = "\n".join(str(record) for record in instance.all_logs(done.run_id))
    assert "ZeroDivisionError" in events
    assert leaks("events", events) == []
    assert leaks_in_files(tmp_path) == []


def test_what_a_pipeline_prints_of_itself_shows_no_secret(
    kafka: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**CANARIES, "BOOTSTRAP": kafka, "TOPIC": topic}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "names.json").write_text('{"i": 1000}\n')
    pipeline: dict[str, Any] = {"__name__": "pipeline"}
    exec(PIPELINE, pipeline)
    env = us.Environment(target="local")
    pipeline["good"](env)
    graph, code = env.job_graph()
    assert leaks("explain", env.explain()) == []
    assert leaks("repr", f"{graph!r} {code!r} {env.stream_graph()!r}") == []
