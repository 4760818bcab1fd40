"""Where a Kafka source begins and stops, by what is given and what the broker says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from kafka import TopicPartition

from unistream.base.errors import ConfigError
from unistream.connector.kafka.broker.offsets import (
    PartitionOffsets,
    checked_offsets,
    start_offsets,
    stop_offsets,
)

A, B = ("t", 0), ("t", 1)
BOUNDS = {A: (3, 10), B: (0, 7)}
PLACES = [A, B]


@pytest.mark.parametrize(
    ("given", "wire"),
    [
        ("latest", "latest"),
        ("committed-or-earliest", "committed-or-earliest"),
        (0, 0),
        (datetime(1970, 1, 1, 0, 0, 1), 1_000),  # noqa: DTZ001  (UTC)
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1_000),
        (datetime(1970, 1, 1, 1, 0, 1, tzinfo=timezone(timedelta(hours=1))), 1_000),
        ({0: 5, 1: 7}, {"0": 5, "1": 7}),
        ({("t", 0): 5, TopicPartition("a-b.c", 1): 7}, {"t-0": 5, "a-b.c-1": 7}),
    ],
)
def test_what_may_be_given_and_how_it_travels(given, wire):
    assert checked_offsets("starting_offsets", given) == wire


def answers(*, at_time=None, committed=None) -> PartitionOffsets:
    return PartitionOffsets(bounds=BOUNDS, at_time=at_time or {}, committed=committed or {}, group="g")


@pytest.mark.parametrize(
    ("given", "known", "starts", "stops"),
    [
        pytest.param("earliest", {}, (3, 0), None, id="earliest"),
        pytest.param("latest", {}, (10, 7), (10, 7), id="latest"),
        pytest.param(1_000, {"at_time": {A: 5, B: None}}, (5, 7), (5, 7), id="none of that time: the end"),
        pytest.param({"0": 3, "1": 7}, {}, (3, 7), (3, 7), id="by partition"),
        pytest.param({"t-0": 3, "t-1": 7}, {}, (3, 7), (3, 7), id="by topic and partition"),
        pytest.param("committed", {"committed": {A: 4, B: 7}}, (4, 7), (4, 7), id="committed"),
        pytest.param(
            "committed-or-earliest", {"committed": {A: 4, B: None}}, (4, 0), (4, 0), id="or the beginning"
        ),
        pytest.param("committed-or-latest", {"committed": {B: 1}}, (10, 1), (10, 1), id="or the end"),
        pytest.param({"0": 2, "1": 100}, {}, None, (2, 100), id="a stop may be deleted, or come later"),
        pytest.param("committed", {"committed": {A: 1, B: 7}}, None, (1, 7), id="also that of a group"),
    ],
)
def test_what_it_means(given, known, starts, stops):
    if starts is not None:
        assert start_offsets(given, PLACES, answers(**known)) == dict(zip(PLACES, starts, strict=True))
    if stops is not None:
        assert stop_offsets(given, PLACES, answers(**known)) == dict(zip(PLACES, stops, strict=True))


@pytest.mark.parametrize(
    ("given", "known", "message"),
    [
        (
            {"0": 3},
            {},
            r"names partitions \[0\], but topic 't' has \[0, 1\]; give an offset for each",
        ),
        ({"t-0": 3}, {}, r"starting_offsets names partitions \[0\], but topic 't' has \[0, 1\]"),
        ({"t-0": 3, "u-1": 0}, {}, "names t-0, u-1, but the topics have t-0, t-1; give an offset for each"),
        ({"0": 2, "1": 0}, {}, "topic 't' partition 0 has no offset 2; available are 3 to 10"),
        ({"0": 3, "1": 8}, {}, "topic 't' partition 1 has no offset 8; available are 0 to 7"),
        (
            "committed",
            {"committed": {B: 1}},
            "group 'g' has committed no offset of t-0; .*\"committed-or-earliest\"",
        ),
        (
            "committed-or-earliest",
            {"committed": {A: 2}},
            "group 'g' is at offset 2 of topic 't' partition 0, which has been deleted; available are 3",
        ),
        (
            "committed-or-latest",
            {"committed": {A: 11}},
            "offset 11 of topic 't' partition 0, which does not",
        ),
    ],
)
def test_starts_that_there_are_not(given, known, message):
    with pytest.raises(ConfigError, match=message):
        start_offsets(given, PLACES, answers(**known))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"1": 3}, r"stopping_offsets names partitions \[1\], but topic 't' has \[0, 1\]"),
        ("committed", "stopping_offsets='committed': group 'g' has committed no offset of t-0, t-1"),
    ],
)
def test_stops_that_there_are_not(given, message):
    with pytest.raises(ConfigError, match=message):
        stop_offsets(given, PLACES, answers())
