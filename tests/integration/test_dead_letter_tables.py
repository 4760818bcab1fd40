"""`unistream dead-letters` for what is no Delta table and no Parquet: Iceberg, a database, Kafka, JSON."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.eventually import WAIT_S
from tests.integration.replayed_rows import DATABASE, KAFKA, MENDED, ROWS, TOPIC
from tests.support.servers.kafka_tools import produce_values
from unistream.testing.devtools.kafka_tools import create_topic

pytestmark = [pytest.mark.usefixtures("replay_folder")]

EVERY = sorted([*range(ROWS), 1_000])
BAD = [i for i in range(ROWS) if i % 3 == 1]
STILL_BAD = [i for i in BAD if i % 6 == 1]
UID = "fares-dead-letters"


@dataclass(frozen=True, slots=True)
class Kept:
    """Where the letters of a pipeline are: the arguments of the commands. `make` what has to be there."""

    pipeline: str
    table: str
    more: tuple[str, ...] = ()
    make: Callable[[], object] = lambda: None


KINDS = ["iceberg", "sqlite", "postgresql", "json", pytest.param("kafka", marks=pytest.mark.kafka)]


@pytest.fixture(params=KINDS)
def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    record = ("--record", "replays")
    if request.param == "json":
        return Kept("replayed_rows:letters_in_json", "lake/dead")
    if request.param == "iceberg":
        return Kept("replayed_rows:letters_in_iceberg", f"replayed_rows:letters_in_iceberg#{UID}")
    if request.param == "kafka":
        return in_kafka(request.getfixturevalue("kafka"), monkeypatch)
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    if request.param == "postgresql":
        url = str(request.getfixturevalue("postgres").new_database())
    monkeypatch.setenv(DATABASE, url)
    pipeline = "replayed_rows:letters_in_a_database"
    return Kept(pipeline, f"{pipeline}#{UID}", record)


def in_kafka(servers: str, monkeypatch: pytest.MonkeyPatch) -> Kept:
    topic = f"letters-{uuid.uuid4().hex[:12]}"
    monkeypatch.setenv(KAFKA, servers)
    monkeypatch.setenv(TOPIC, topic)
    pipeline = "replayed_rows:letters_in_kafka"
    return Kept(
        pipeline,
        f"{pipeline}#{UID}",
        ("--record", "replays"),
        lambda: create_topic(servers, topic, partitions=2),
    )


def ids() -> list[int]:
    return sorted(DeltaTable("lake/fares").to_pyarrow_table()["id"].to_pylist())


def test_each_letter_is_replayed_once(
    kept: Kept, said: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, table, more = kept.pipeline, kept.table, kept.more
    _, err = said("dead-letters", "list", table, *more, code=2)
    assert "does not exist" in err or "there is no table or folder" in err
    kept.make()
    said("run", pipeline, "-t", "local", "-p", "2")
    assert ids() == [i for i in EVERY if i not in BAD]
    (group,) = said("dead-letters", "list", table, *more, "--json")
    assert (group["operator_uid"], group["letters"], group["replayed"]) == ("fares", len(BAD), 0)
    shown = said("dead-letters", "show", table, *more, "-n", "100", "--json")
    assert sorted(json.loads(one["row"])["id"] for one in shown) == BAD

    monkeypatch.setenv(MENDED, "some")
    replay = ("dead-letters", "replay", table, pipeline, "-t", "local", *more, "--json")
    first = said(*replay)
    assert (first["letters"], first["failed_again"]) == (len(BAD), len(STILL_BAD))
    assert ids() == [i for i in EVERY if i not in STILL_BAD]
    (group,) = said("dead-letters", "list", table, *more, "--json")
    assert (group["letters"], group["replayed"]) == (len(BAD) + len(STILL_BAD), len(BAD))
    assert group["attempts"] == 2

    monkeypatch.setenv(MENDED, "all")
    assert said(*replay)["letters"] == len(STILL_BAD)
    assert ids() == EVERY
    assert said(*replay)["letters"] == 0, "a second time there is nothing to do"
    assert ids() == EVERY


def written_twice(servers: str, topic: str, headers: list[tuple[str, bytes]] | None = None) -> None:
    """All records once more, with their headers or with others."""
    places = [TopicPartition(topic, partition) for partition in range(2)]
    consumer = KafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed")
    producer = KafkaProducer(bootstrap_servers=servers)
    try:
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places)
        found: list[Any] = []
        deadline = time.monotonic() + WAIT_S
        while any(consumer.position(place) < ends[place] for place in places):
            assert time.monotonic() < deadline, "the records were not read"
            found += [one for part in consumer.poll(timeout_ms=500).values() for one in part]
        for one in found:
            if one.value is not None:
                producer.send(topic, one.value, key=one.key, headers=headers or list(one.headers))
        producer.flush(timeout=WAIT_S)
    finally:
        consumer.close()
        producer.close(timeout=10)


@pytest.mark.kafka
def test_a_topic_that_has_other_things(
    kafka: str, said: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = in_kafka(kafka, monkeypatch)
    kept.make()
    out, _ = said("dead-letters", "list", kept.table)
    assert "there are no dead letters" in out, "nothing was written to it yet"
    said("run", kept.pipeline, "-t", "local", "-p", "2")
    topic = os.environ[TOPIC]
    produce_values(kafka, topic, [None], keys=[b"k"])
    written_twice(kafka, topic)
    (group,) = said("dead-letters", "list", kept.table, "--json")
    counted = (group["letters"], group["replayed"])
    assert counted == (len(BAD), None), "a tombstone is no letter, and one that is there twice counts once"
    alike = [("error", b"another"), ("of", b"fares"), ("ipc", b"")]
    written_twice(kafka, topic, alike)
    (group,) = said("dead-letters", "list", kept.table, "--json")
    assert group["letters"] == 2 * len(BAD), "what differs in a header is another letter"
    _, err = said("dead-letters", "replay", kept.table, kept.pipeline, "-t", "local", code=2)
    assert "give one by --record, and always the same one" in err
    produce_values(kafka, topic, [b"a text"], partitions=[0])
    _, err = said("dead-letters", "show", kept.table, code=2)
    assert f"topic '{topic}' partition 0 offset " in err
    assert "letters need a topic of their own" in err
    assert "Traceback" not in err


def test_what_cannot_be_read(
    tmp_path: Path, said: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATABASE, f"sqlite:///{tmp_path / 'letters.db'}")
    pipeline = "replayed_rows:letters_in_a_database"
    said("run", pipeline, "-t", "local", "-p", "1")
    table = f"{pipeline}#{UID}"
    (group,) = said("dead-letters", "list", table, "--json")
    assert (group["letters"], group["replayed"]) == (len(BAD), None), "it is not known which were replayed"
    out, _ = said("dead-letters", "show", table, "-n", "1")
    assert f"{len(BAD) - 1} more" in out
    for words, sentence in [
        (("replay", table, pipeline, "-t", "local"), "give one by --record, and always the same one"),
        (("list", f"{pipeline}#dead"), f"has no sink 'dead'; its sinks are '{UID}', 'lake'"),
        (("list", f"{pipeline}#lake"), "cannot read its letters back: give the path of its Delta table"),
        (("list", "lake/fares", "--record", "replays"), "--record is for a table in a database"),
        (("list", "nowhere:at_all#x"), "nowhere"),
    ]:
        _, err = said("dead-letters", *words, code=2)
        assert sentence in err, words
    assert ids() == [i for i in EVERY if i not in BAD]
