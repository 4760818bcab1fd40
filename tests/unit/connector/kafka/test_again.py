"""For how long a request to Kafka is repeated."""

from __future__ import annotations

import time

import pytest
from kafka import errors as kafka_errors

from unistream.connector.kafka.broker import calls


@pytest.mark.parametrize(
    ("error", "free_in_s", "is_asked_again"),
    [
        pytest.param(kafka_errors.NodeNotReadyError(), -60.0, False, id="it does not answer"),
        pytest.param(kafka_errors.NodeNotReadyError(), 90.0, True, id="it holds back"),
        pytest.param(kafka_errors.NodeNotReadyError(), -1.0, True, id="it has let through a moment before"),
        pytest.param(kafka_errors.InvalidTopicError(), 90.0, False, id="it refuses for good"),
    ],
)
def test_patience_begins_when_a_broker_takes_requests(
    error: kafka_errors.KafkaError, free_in_s: float, is_asked_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "ANSWER_WITHIN_S", 0.0)
    again = calls._Again()  # whose own time is over at once
    monkeypatch.setattr(calls, "ANSWER_WITHIN_S", 30.0)
    time.sleep(0.01)
    free_s = time.monotonic() + free_in_s
    if is_asked_again:
        assert 0 < again.wait_s(error, free_s) <= calls.RETRY_MAX_S
    else:
        with pytest.raises(type(error)):
            again.wait_s(error, free_s)
