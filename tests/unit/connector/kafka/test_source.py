"""What a Kafka source refuses, shows and tells the master; no broker needed."""

from __future__ import annotations

import json
import re
import socket
import time

import cloudpickle
import msgspec
import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError, ProtocolError, Unreachable
from unistream.connector.kafka import KafkaSource, create_discovery
from unistream.connector.kafka.client import Position
from unistream.connector.kafka.config import client_settings
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split

SCHEMA = pa.schema([("a", pa.int64())])


def source(**changed) -> KafkaSource:
    return KafkaSource(**{"bootstrap_servers": "127.0.0.1:9", "topic": "t", "schema": SCHEMA, **changed})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"bootstrap_servers": "localhost"}, "'localhost' is not host:port"),
        ({"bootstrap_servers": "a:1,b"}, "'b' is not host:port"),
        ({"topic": "a topic"}, "'a topic' is not the name of a Kafka topic"),
        ({"schema": None}, "needs a schema"),
        ({"schema": pa.schema([("a", pa.int64()), ("a", pa.int64())])}, "no name twice"),
        ({"schema": pa.schema([("d", pa.duration("s"))])}, "column 'd'"),
        ({"format": "avro"}, "format is one of json, bytes, not 'avro'"),
        ({"on_bad_record": "ignore"}, "on_bad_record is one of fail, skip, dead-letter, not 'ignore'"),
        ({"starting_offsets": "newest"}, "starting_offsets is .*not 'newest'"),
        ({"starting_offsets": {0: -1}}, "starting_offsets is "),
        ({"starting_offsets": True}, "starting_offsets is "),
        ({"starting_offsets": {}}, "starting_offsets is "),
        (
            {"properties": {"sasl.mechansim": "PLAIN"}},
            "unknown Kafka property 'sasl.mechansim'; did you mean 'sasl.mechanism'",
        ),
        ({"properties": {"enable.auto.commit": "true"}}, "'enable.auto.commit' is decided by the source"),
        ({"properties": {"fetch.max.bytes": "many"}}, "'fetch.max.bytes': 'many' is not a whole number"),
        ({"properties": {"check.crcs": "perhaps"}}, "'check.crcs': 'perhaps' is not true or false"),
    ],
)
def test_wrong_arguments_are_refused_on_the_client(changed, message):
    with pytest.raises(ConfigError, match=re.compile(message, re.DOTALL)):
        source(**changed)


def test_secrets_are_not_shown():
    shown = repr(
        source(
            properties={
                "sasl.plain.username": "user-7",
                "sasl.plain.password": "hunter2",
                "ssl_password": "${env:KEY_PASSWORD}",
                "client.id": "me",
            }
        )
    )
    assert "hunter2" not in shown
    assert "user-7" not in shown
    assert "${env:KEY_PASSWORD}" in shown
    assert "'client.id': 'me'" in shown


def test_references_are_looked_up_where_the_client_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("KAFKA_USER", "u")
    secret = tmp_path / "secret"
    secret.write_text("p\n", encoding="utf-8")
    properties = {"sasl.plain.username": "${env:KAFKA_USER}", "sasl.plain.password": f"${{file:{secret}}}"}
    settings = client_settings("a:1, b:2", properties)
    assert (settings["sasl_plain_username"], settings["sasl_plain_password"]) == ("u", "p")
    assert settings["bootstrap_servers"] == ["a:1", "b:2"]
    assert settings["isolation_level"] == "read_committed"
    source(properties={"sasl.plain.password": "${env:SET_ON_THE_CLUSTER_ONLY}"})
    with pytest.raises(ConfigError, match="'SET_ON_THE_CLUSTER_ONLY', which is not set"):
        client_settings("a:1", {"sasl.plain.password": "${env:SET_ON_THE_CLUSTER_ONLY}"})
    with pytest.raises(ConfigError, match=r"refers to file .*: No such file"):
        client_settings("a:1", {"sasl.plain.password": f"${{file:{tmp_path / 'none'}}}"})


def test_info_is_json_that_makes_a_discovery_and_the_source_travels():
    given = source(starting_offsets={0: 5, 1: 7}, bounded=True, properties={"fetch.max.bytes": 1000})
    info = cloudpickle.loads(cloudpickle.dumps(given)).info()
    assert (info.connector, info.bounded, info.pull) == ("kafka", True, False)
    assert json.loads(json.dumps(info.options)) == {
        "bootstrap_servers": "127.0.0.1:9",
        "topic": "t",
        "starting_offsets": {"0": 5, "1": 7},
        "bounded": True,
        "properties": {"fetch.max.bytes": "1000"},
    }
    create_discovery(msgspec.json.decode(msgspec.json.encode(info), type=SourceInfo)).close()
    with pytest.raises(ConfigError, match=r"options of a Kafka source: .*bootstrap_servers"):
        create_discovery(SourceInfo(connector="kafka", options={}, bounded=True, pull=False))


def test_positions_round_trip_and_others_are_refused():
    position = Position(topic="a", partition=3, offset=2**40, stop=None)
    assert Position.of(position.split()) == position
    assert position.split().id == "a-3"
    with pytest.raises(ProtocolError, match="split 'x' is not a Kafka position"):
        Position.of(Split(id="x", data=b"\xff"))


def test_an_unreachable_broker_is_named_within_the_timeout():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    discovery = create_discovery(
        source(bootstrap_servers=address, properties={"bootstrap.timeout.ms": "1500"}).info()
    )
    began = time.monotonic()
    with pytest.raises(Unreachable, match=f"Kafka at {address} did not answer"):
        discovery.discover()
    assert time.monotonic() - began < 10
