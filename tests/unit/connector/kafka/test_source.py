"""What a Kafka source refuses, shows and tells the master; no broker needed."""

from __future__ import annotations

import json
import re
import socket
from datetime import UTC, datetime

import cloudpickle
import msgspec
import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError, CorruptSnapshot, Unreachable
from unistream.connector.kafka import KafkaSource, create_discovery
from unistream.connector.kafka.broker.client import KafkaPosition
from unistream.connector.kafka.broker.config import client_settings
from unistream.connector.kafka.broker.topic import (
    Topic,
    check_same_topic,
    created_again,
    deleted,
    recorded_offsets,
    same_topic,
    without_partitions,
)
from unistream.connector.kafka.broker.topics import checked_topics, read_before
from unistream.connector.kafka.source.fetch import FetchThread
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split
from unistream.model.positions import SourcePositions
from unistream.model.splits import KnownSplits
from unistream.port.source import ReaderContext
from unistream.testing.harness.operators import CountingMetrics

SCHEMA = pa.schema([("a", pa.int64())])


def source(**changed) -> KafkaSource:
    return KafkaSource(**{"bootstrap_servers": "127.0.0.1:9", "topic": "t", "schema": SCHEMA, **changed})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"bootstrap_servers": "localhost"}, "'localhost' is not host:port"),
        ({"bootstrap_servers": "a:1,b"}, "'b' is not host:port"),
        ({"topic": "a topic"}, "'a topic' is not the name of a Kafka topic"),
        ({"topic": ["a", "a topic"]}, "'a topic' is not the name of a Kafka topic"),
        ({"topic": []}, r"names no topic, or one twice: \[\]"),
        ({"topic": ["a", "a"]}, r"names no topic, or one twice: \['a', 'a'\]"),
        ({"topic": None}, "give one of the two"),
        ({"topic_pattern": "t.*"}, "give one of the two"),
        ({"topic": None, "topic_pattern": "t("}, r"topic_pattern 't\(' is no regular expression \(RE2\): .*"),
        ({"topic": None, "topic_pattern": ""}, "topic_pattern is empty"),
        (
            {"topic": ["t", "u"], "starting_offsets": {0: 3}},
            "starting_offsets names partitions, but the source reads several topics",
        ),
        ({"schema": None}, "needs a schema"),
        ({"schema": pa.schema([("a", pa.int64()), ("a", pa.int64())])}, "schema= has two columns 'a'"),
        ({"schema": pa.schema([("d", pa.duration("s"))])}, "column 'd'"),
        ({"format": "csv"}, "format must be one of json, bytes, .*avro-confluent.*, not 'csv'"),
        ({"format": "avro"}, "needs the schema of the records: message=us.AvroRecord"),
        ({"on_bad_record": "ignore"}, "on_bad_record must be one of fail, skip, dead-letter, not 'ignore'"),
        ({"starting_offsets": "newest"}, "starting_offsets must be .*not 'newest'"),
        ({"starting_offsets": {0: -1}}, "starting_offsets must be "),
        ({"starting_offsets": True}, "starting_offsets must be "),
        ({"starting_offsets": {}}, "starting_offsets must be "),
        ({"starting_offsets": {(0, "t"): 3}}, "starting_offsets must be "),
        ({"starting_offsets": datetime(1969, 12, 31, tzinfo=UTC)}, "starting_offsets must be "),
        ({"stopping_offsets": "earliest"}, "stopping_offsets must be one of \"latest\", .*not 'earliest'"),
        ({"stopping_offsets": False}, "stopping_offsets must be "),
        (
            {"starting_offsets": "committed"},
            "='committed' are the offsets .*name it: .*group.id",
        ),
        (
            {"stopping_offsets": "committed-or-latest"},
            "='committed-or-latest' are .*group.id",
        ),
        ({"partition_discovery_interval_ms": "5 min"}, "must be a whole number of milliseconds, not '5 min'"),
        (
            {"properties": {"partition.discovery.interval.ms": "1000"}},
            "is not a property of the client; give the source partition_discovery_interval_ms=1000",
        ),
        (
            {"properties": {"sasl.mechansim": "PLAIN"}},
            "unknown Kafka property 'sasl.mechansim'; did you mean 'sasl.mechanism'",
        ),
        ({"properties": {"enable.auto.commit": "true"}}, "'enable.auto.commit' is set by the source"),
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
        "topics": {"names": ["t"], "pattern": ""},
        "starting_offsets": {"0": 5, "1": 7},
        "bounded": True,
        "stopping_offsets": None,
        "properties": {"fetch.max.bytes": "1000"},
    }
    assert info.discovery_interval_ms == 0, "what is bounded is looked at once"
    create_discovery(msgspec.json.decode(msgspec.json.encode(info), type=SourceInfo)).close()
    with pytest.raises(ConfigError, match=r"options of a Kafka source: .*bootstrap_servers"):
        create_discovery(SourceInfo(connector="kafka", options={}, bounded=True, pull=False))


def test_positions_round_trip_and_others_are_refused():
    position = KafkaPosition(topic="a", partition=3, offset=2**40, stop=None)
    assert KafkaPosition.of(position.split()) == position
    assert position.split().id == "a-3"
    with pytest.raises(CorruptSnapshot, match="split 'x' of a Kafka source is unreadable"):
        KafkaPosition.of(Split(id="x", data=b"\xff"))


def test_an_unreachable_broker_is_named_within_the_timeout():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    discovery = create_discovery(
        source(bootstrap_servers=address, properties={"bootstrap.timeout.ms": "1500"}).info()
    )
    with pytest.raises(Unreachable, match=f"Kafka at {address} did not answer within 2 s"):
        discovery.discover()


@pytest.mark.parametrize(
    ("given", "interval_ms"),
    [
        ({}, 300_000),
        ({"partition_discovery_interval_ms": 1_000}, 1_000),
        ({"partition_discovery_interval_ms": 0}, 0),
        ({"partition_discovery_interval_ms": -1}, 0),
        ({"partition_discovery_interval_ms": 1_000, "bounded": True}, 0),
        ({"partition_discovery_interval_ms": 1_000, "stopping_offsets": {0: 5}}, 0),
    ],
)
def test_how_often_partitions_are_looked_for(given, interval_ms):
    assert source(**given).info().discovery_interval_ms == interval_ms


def test_positions_of_older_versions_are_read_and_have_no_topic_id():
    old = msgspec.msgpack.encode({"topic": "t", "partition": 1, "offset": 5, "stop": None})
    assert KafkaPosition.of(Split(id="t-1", data=old)) == KafkaPosition(topic="t", partition=1, offset=5)


BOUNDS = {0: (3, 10), 1: (0, 7)}


def positions(offsets, *, connector="kafka", name="t", origin="id-1"):
    return SourcePositions(uid="topic", connector=connector, name=name, origin=origin, offsets=offsets)


@pytest.mark.parametrize(
    ("recorded", "offsets"),
    [
        pytest.param({"0": 5, "1": 6}, {0: 5, 1: 6}, id="where the history ends"),
        pytest.param({"0": 10, "1": 7}, {0: 10, 1: 7}, id="nothing came since"),
        pytest.param(
            {"1": 6}, {0: 3, 1: 6}, id="a partition that was added later is read from its beginning"
        ),
        pytest.param({"0": 3, "1": 0}, {0: 3, 1: 0}, id="the first record that is still there"),
    ],
)
def test_where_a_live_source_goes_on_after_a_recorded_history(recorded, offsets):
    topic = Topic(name="t", id="id-1", partitions=(0, 1))
    assert recorded_offsets(topic, positions(recorded), BOUNDS) == offsets


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        pytest.param(
            {"0": 2, "1": 6},
            "ends before offset 2 of topic 't' partition 0, but the records from there on were deleted by "
            r"its retention; available are 3 to 10 \(exclusive\)",
            id="behind retention",
        ),
        pytest.param(
            {"0": 5, "1": 8}, "partition 1, but the records from there on are not there", id="ahead"
        ),
        pytest.param(
            {"0": 5, "1": 6, "2": 0}, r"partition 2 of topic 't', which has only \[0, 1\]", id="another topic"
        ),
    ],
)
def test_records_behind_a_history_that_are_not_there_are_refused(recorded, message):
    topic = Topic(name="t", id="id-1", partitions=(0, 1))
    with pytest.raises(ConfigError, match=message):
        recorded_offsets(topic, positions(recorded), BOUNDS)


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        pytest.param({}, None, id="the same topic"),
        pytest.param({"origin": ""}, None, id="of a broker without ids"),
        pytest.param({"origin": "id-2"}, r"another topic .t. \(id id-2\) than", id="another id"),
        pytest.param({"name": "u"}, "are those of kafka 'u', not of topic 't'", id="another name"),
        pytest.param({"connector": "other"}, "are those of other 't', not of topic 't'", id="another system"),
    ],
)
def test_positions_of_another_topic_are_refused(recorded, message):
    topic = Topic(name="t", id="id-1", partitions=(0, 1))
    if message is None:
        check_same_topic(topic, "host:1", positions({}, **recorded))
        return
    with pytest.raises(ConfigError, match=message):
        check_same_topic(topic, "host:1", positions({}, **recorded))


def test_offsets_may_be_recorded_with_the_commits_of_a_sink():
    assert source().info().recorded_as == "t"
    assert KafkaPosition(topic="t", partition=3, offset=7).split().recorded == ("3", 7)


@pytest.mark.parametrize(("read", "now", "same"), [("a", "a", True), ("a", "b", False), ("", "b", True)])
def test_a_topic_is_told_by_its_id_if_it_has_one(read, now, same):
    assert same_topic(read, now) is same


@pytest.mark.parametrize(
    "error",
    [deleted("t", "k:1"), created_again("t", "k:1", read="a", now="b"), without_partitions("t", "k:1", [1])],
)
def test_what_is_said_of_a_topic_that_is_not_the_one_that_was_read(error):
    for said in ("topic 't' at k:1", "starting_offsets", "another uid", "--allow-non-restored-state"):
        assert said in str(error)


@pytest.mark.parametrize(
    ("given", "existing", "read"),
    [
        ({"topic": "a"}, ["a", "ab"], ["a"]),
        ({"topic": ["b", "a"]}, ["a", "c"], ["a"]),
        ({"topic_pattern": "orders|flights-.*"}, ["orders", "orders-2", "flights-", "a-flights-1"], None),
        ({"topic_pattern": r"o\.d"}, ["o.d", "oxd"], ["o.d"]),
    ],
)
def test_which_topics_are_read(given, existing, read):
    topics = checked_topics(given.get("topic"), given.get("topic_pattern"))
    assert topics.of(existing) == (["flights-", "orders"] if read is None else read)


def known(*ids: str, origin: str = "", origins: dict[str, str] | None = None) -> KnownSplits:
    return KnownSplits(ids=frozenset(ids), origin=origin, origins=origins or {})


@pytest.mark.parametrize(
    ("before", "read"),
    [
        pytest.param(
            known("a-0", "a-1", origin="id"), {"a": "id"}, id="one topic, as it was written by then"
        ),
        pytest.param(known("a-0", "b-x-0", origins={"a": "1", "b-x": "2"}), {"a": "1", "b-x": "2"}, id="two"),
        pytest.param(
            known("a-0", "b-x-0", origin="1", origins={"a": "1", "b-x": "2"}),
            {"a": "1", "b-x": "2"},
            id="one at first, and then two",
        ),
        pytest.param(known("a-0", "b-x-0"), {"a": "", "b-x": ""}, id="of brokers without ids"),
    ],
)
def test_what_was_read_before(before, read):
    assert read_before(checked_topics(["a", "b-x"], None), before) == read


def test_a_topic_that_is_not_read_any_more_is_refused():
    with pytest.raises(
        ConfigError, match=r"also those of topic 'b', which it does not read .*it reads a.*uid"
    ):
        read_before(checked_topics("a", None), known("a-0", "b-0"))
    with pytest.raises(ConfigError, match="also those of topic 'b'"):
        read_before(checked_topics(None, "a.*"), known("b-0"))


def test_a_source_of_several_topics_says_so():
    several = source(topic=["t", "u"])
    assert several.name == "Kafka: t, u"
    assert (several.info().recorded_as, several.info().recorded_by_name) == ("t, u", True)
    assert [one.name for one in several.lineage_datasets()] == ["t", "u"]
    assert source(topic=["t"]).info() == source().info()
    pattern = source(topic=None, topic_pattern="t.*")
    assert (pattern.name, pattern.info().recorded_by_name) == ("Kafka: t.*", True)
    assert KafkaPosition(topic="t", partition=3, offset=7).split(by_name=True).recorded == ("t-3", 7)


@pytest.mark.parametrize(
    ("ends", "stop", "behind"),
    [
        pytest.param({}, None, None, id="nobody has said where it ends"),
        pytest.param({}, 10, 7, id="it is read up to a stop"),
        pytest.param({("t", 0): 5}, None, 2, id="as far as there are records"),
        pytest.param({("t", 0): 5}, 10, 2, id="the stop is not there yet"),
        pytest.param({("t", 0): 50}, 10, 7, id="more than is read"),
        pytest.param({("t", 0): 3}, None, 0, id="all were read"),
    ],
)
def test_what_is_not_known_is_not_zero(ends, stop, behind):
    thread = FetchThread("nowhere:1", {}, source()._decoder(), lambda: None)
    thread._ends = ends
    assert thread.records_after(KafkaPosition(topic="t", partition=0, offset=3, stop=stop)) == behind


def test_a_reader_shows_no_number_of_records_before_all_partitions_have_said_theirs():
    reader, metrics = source().create_reader(), CountingMetrics()
    reader._context = ReaderContext(
        index=0, parallelism=1, wake=lambda: None, request_split=lambda: None, metrics=metrics
    )
    reader._fetch = FetchThread("nowhere:1", {}, source()._decoder(), lambda: None)  # which is not started
    reader.poll()
    reader.add_splits([KafkaPosition(topic="t", partition=n, offset=0).split() for n in range(2)])
    reader._fetch._ends = {("t", 0): 5}
    reader.poll()
    assert "pendingRecords" not in metrics.counts
    reader._fetch._ends = {("t", 0): 5, ("t", 1): 6}
    reader.poll()
    assert metrics.counts["pendingRecords"] == 11
