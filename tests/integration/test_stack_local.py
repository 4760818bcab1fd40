"""The local stack: real servers start, answer, are found again and leave nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from kafka import KafkaProducer
from kazoo.client import KazooClient
from typer.testing import CliRunner

import unistream as us
from tests.eventually import WAIT_S
from tests.support.servers.kafka_tools import end_offsets, produce_values
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError, Unreachable
from unistream.base.object_stores import file_system, use_store
from unistream.cli.stack import app
from unistream.connector.catalogue import create_discovery
from unistream.testing.devtools import jars as stack_jars
from unistream.testing.devtools import servers as stack_servers
from unistream.testing.devtools import stack
from unistream.testing.devtools.kafka_tools import broker_ids, topic_partitions
from unistream.testing.devtools.process import ProcessId, process_id, wait_until_ended

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def _said(*arguments: str, folder: Path) -> str:
    return CliRunner().invoke(app, [*arguments, "--dir", str(folder)], catch_exceptions=False).stderr


def _run(*arguments: str, folder: Path) -> str:
    result = CliRunner().invoke(app, [*arguments, "--dir", str(folder)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_buckets_are_made_and_jobs_find_them_by_the_options_that_are_shown(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the local s3 does not run: 'unistream stack up s3' starts it"):
        _run("buckets", "create", "lake", folder=tmp_path)
    try:
        _run("up", "s3", folder=tmp_path)
        with pytest.raises(ConfigError, match="'The Lake' is no name of a bucket: 3 to 63 small letters"):
            _run("buckets", "create", "other", "The Lake", folder=tmp_path)
        made = _run("buckets", "create", "lake", folder=tmp_path)
        assert made.startswith("s3://lake is there\njobs find it with -D s3.endpoint=http://127.0.0.1:")
        options = dict(one.split("=", 1) for one in made.split() if one.startswith("s3."))
        use_store(Configuration(options))
        files, _ = file_system("s3://lake")
        files.pipe_file("lake/a", b"1")
        assert _run("buckets", "create", "lake", folder=tmp_path) == made
        assert files.cat_file("lake/a") == b"1"
        assert not files.exists("other")
    finally:
        use_store(Configuration({}))
        _run("down", folder=tmp_path)


@pytest.mark.own_network
def test_up_twice_status_logs_down_and_data_survive(tmp_path: Path):
    """On the usual ports, or where it must be on another one, and says so."""
    try:
        [broker, keeper, store] = json.loads(_run("up", "--json", folder=tmp_path))
        assert (broker["state"], keeper["state"], store["state"]) == ("running", "running", "stopped")
        assert (broker["address"], keeper["address"]) == ("127.0.0.1:9092", "127.0.0.1:2181")
        assert (
            _run("topics", "create", "kept", "-p", "2", folder=tmp_path) == "created kept with 2 partitions\n"
        )
        again = _run("topics", "create", "kept", "--partitions", "2", folder=tmp_path)
        assert again == "kept is there already, with 2 partitions\n"
        with pytest.raises(ConfigError, match="topic 'kept' is there already, with 2 partitions"):
            _run("topics", "create", "kept", folder=tmp_path)
        assert _run("topics", "list", folder=tmp_path) == "kept  2 partitions\n"
        produce_values(broker["address"], "kept", [b"1", b"2", b"3"], partitions=[0, 1, 1])
        assert json.loads(_run("up", "--json", folder=tmp_path)) == [broker, keeper, store]
        assert "Kafka Server started" in _run("logs", "kafka", "-n", "40", folder=tmp_path)
        _, controller = stack._read(tmp_path).servers["kafka"].ports

        assert _run("down", folder=tmp_path).strip() == "stopped kafka, zookeeper"
        assert process_id(broker["pid"]) is None
        assert process_id(keeper["pid"]) is None
        assert _run("down", folder=tmp_path).strip() == "nothing was running"
        assert {s.state for s in stack.status(tmp_path)} == {"stopped"}

        with socket.create_server((stack_servers.HOST, controller)):  # somebody takes what no client knows
            [again] = json.loads(_run("up", "kafka", "--json", folder=tmp_path))[:1]
        assert again["pid"] != broker["pid"]
        assert again["address"] == broker["address"]
        assert end_offsets(again["address"], "kept") == {0: 1, 1: 2}

        with socket.create_server((stack_servers.HOST, 2181)):  # somebody takes what clients know
            said = _said("up", "zookeeper", folder=tmp_path)
        assert re.search(
            r"zookeeper is on 127\.0\.0\.1:\d+, not on its usual port 2181, which is taken", said
        )
        assert "its usual port 2181, which is free now" in _said("up", "zookeeper", folder=tmp_path)
    finally:
        stack.down(tmp_path)


def test_fixtures_serve_real_clients(kafka: str, zookeeper: str):
    assert broker_ids(kafka) == [1]
    client = KazooClient(zookeeper)
    client.start(timeout=WAIT_S)
    try:
        client.create("/stack-test", b"x", ephemeral=True)
        assert client.get("/stack-test")[0] == b"x"
    finally:
        client.stop()
        client.close()


def test_servers_end_with_the_process_that_entered_the_stack(tmp_path: Path):
    code = (
        "import sys, time; from pathlib import Path\n"
        "from unistream.testing.devtools.stack import LocalStack\n"
        "with LocalStack(Path(sys.argv[1]), ['zookeeper']) as s:\n"
        "    print(s.process('zookeeper').pid, flush=True); time.sleep(600)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        server = process_id(int(owner.stdout.readline()))
        assert server is not None
        owner.send_signal(signal.SIGKILL)
        assert wait_until_ended(server, 60)
    finally:
        owner.kill()
        owner.communicate()
        stack.down(tmp_path)


def test_down_leaves_a_process_alone_that_only_has_the_same_number(tmp_path: Path):
    me = process_id(os.getpid())
    assert me is not None
    stranger = ProcessId(me.pid, me.start_ticks + 1)
    record = stack.StackRecord(
        servers={"kafka": stack.ServerRecord(process=stranger, ports=(1, 2), started_ms=0)}
    )
    (tmp_path / "stack.json").write_bytes(stack.msgspec.json.encode(record))
    assert stack.down(tmp_path) == []
    assert me.alive


def test_a_server_that_cannot_start_shows_its_log_and_leaves_nothing(tmp_path: Path):
    home = tmp_path / "zookeeper"
    home.mkdir()
    (home / "data").write_text("not a folder", encoding="utf-8")
    with pytest.raises(Unreachable, match=r"(?s)zookeeper ended while it started; last lines of .*data"):
        stack.up(tmp_path, ["zookeeper"])
    assert {s.state for s in stack.status(tmp_path)} == {"stopped"}


def test_two_users_share_one_server_until_both_have_left(tmp_path: Path):
    with stack.shared_server(tmp_path, "zookeeper") as first:
        with stack.shared_server(tmp_path, "zookeeper") as second:
            assert first == second
        assert stack_servers.SERVERS["zookeeper"].serves(int(first.rpartition(":")[2])) is None
    assert {s.state for s in stack.status(tmp_path)} == {"stopped"}


def test_a_stack_leaves_alone_what_ran_before(tmp_path: Path):
    try:
        [_, before, _] = stack.up(tmp_path, ["zookeeper"])
        with stack.LocalStack(tmp_path, ["zookeeper"]) as inner:
            assert inner.address("zookeeper") == before.address
        [_, after, _] = stack.status(tmp_path)
        assert after == before
    finally:
        stack.down(tmp_path)


@pytest.mark.own_network
def test_a_broker_for_people_makes_a_topic_for_who_writes_and_none_for_who_reads(tmp_path: Path):
    try:
        [kafka, *_] = stack.up(tmp_path, ["kafka"], as_usual=True)
        assert kafka.address == "127.0.0.1:9092"
        source = us.KafkaSource(
            bootstrap_servers=kafka.address, topic="mistyped", schema=pa.schema([("n", pa.int64())])
        )
        with pytest.raises(ConfigError, match="topic 'mistyped' does not exist"):
            create_discovery(source.info()).discover()
        with closing(KafkaProducer(bootstrap_servers=kafka.address)) as producer:
            producer.send("written", b"1").get(timeout=WAIT_S)
        assert topic_partitions(kafka.address) == {"written": 1}
    finally:
        stack.down(tmp_path)


def test_missing_programs_and_unknown_servers_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ConfigError, match="no server 'redis' in the local stack; it has kafka, zookeeper"):
        stack.up(tmp_path, ["redis"])
    with pytest.raises(ConfigError, match="kafka was never started in"):
        stack.log_tail(tmp_path, "kafka")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv(stack_jars.CACHE_VARIABLE, str(tmp_path / "cache"))
    with pytest.raises(ConfigError, match="java is not on the path; install Java 17"):
        stack_jars.java()
    with pytest.raises(ConfigError, match=r"mvn is not on the path; install Maven"):
        stack_jars.kafka_jars()


def test_half_a_download_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    version = stack_jars.kafka_version(stack_jars.kafka_pom())
    half = tmp_path / f"kafka-{version}"
    half.mkdir()
    (half / "kafka_2.13-broken.jar").write_bytes(b"")
    monkeypatch.setenv(stack_jars.CACHE_VARIABLE, str(tmp_path))
    jars = stack_jars.kafka_jars()
    assert jars == half
    assert not (half / "kafka_2.13-broken.jar").exists()
    assert (half / f"kafka_2.13-{version}.jar").stat().st_size > 1_000_000
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"kafka-{version}", f"kafka-{version}.lock"]
