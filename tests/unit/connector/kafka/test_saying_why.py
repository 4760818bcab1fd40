"""Why a client could not connect, from what kafka-python logs of its tries."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from kafka.errors import (
    InvalidTopicError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NotLeaderForPartitionError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)

from unistream.base.errors import ConfigError, Unreachable
from unistream.connector.kafka.broker.calls import our_error
from unistream.connector.kafka.broker.private import REFUSED, saying_why

MANAGER = logging.getLogger("kafka.net.manager")
GONE = KafkaConnectionError("socket disconnected")
WRONG = SaslAuthenticationFailedError(
    "SaslAuthenticationFailedError: Authentication failed: Invalid password"
)
TLS = KafkaConnectionError("Handshake failed: [SSL: WRONG_VERSION_NUMBER]")
SASL = {"security_protocol": "SASL_PLAINTEXT"}


@pytest.mark.parametrize(
    ("tries", "properties", "kind", "sentence"),
    [
        ([GONE, WRONG, GONE], SASL, SaslAuthenticationFailedError, "Error: Authentication failed: Invalid"),
        ([GONE, UnsupportedSaslMechanismError()], SASL, UnsupportedSaslMechanismError, "UnsupportedSasl"),
        ([GONE], SASL, KafkaTimeoutError, "is SASL_PLAINTEXT the .*, and are user, password and sasl.mech"),
        ([GONE], {}, KafkaTimeoutError, r"is PLAINTEXT the security.protocol of this listener\?$"),
        ([TLS, GONE], {}, KafkaTimeoutError, "Handshake failed"),
        ([], SASL, KafkaTimeoutError, "Unable to bootstrap$"),
    ],
)
def test_the_refusal_of_a_login_is_raised_and_other_reasons_are_added(
    tries: list[Exception], properties: dict[str, str], kind: type[KafkaError], sentence: str
) -> None:
    lines = [
        ("Bootstrap connection to %s failed: %s (backoff %.2f secs)", "0", error, 0.1) for error in tries
    ]
    over = KafkaTimeoutError("Unable to bootstrap")
    with pytest.raises(kind, match=sentence):
        connect(properties, [*lines, ("Bootstrap failed: %s", over)], over)


def connect(properties: dict[str, str], lines: list[tuple[Any, ...]], end: KafkaError) -> None:
    """As the constructor of a client: it logs, and fails."""
    with saying_why(properties):
        for line in lines:
            MANAGER.warning(*line)
        raise end


def test_a_reason_that_is_only_in_the_text_of_a_line() -> None:
    line = "Bootstrap attempt to 0 failed: socket disconnected (backoff 0.1 secs)"
    with pytest.raises(KafkaTimeoutError, match=r"is PLAINTEXT the security.protocol"):
        connect({}, [(line,)], KafkaTimeoutError("Unable to bootstrap"))


def test_other_errors_are_raised_as_they_are_and_nobody_listens_any_more() -> None:
    before = list(MANAGER.handlers)
    with pytest.raises(KafkaConnectionError, match="closed"):
        connect({}, [("Bootstrap connection to %s failed: %s", "0", WRONG)], KafkaConnectionError("closed"))
    assert MANAGER.handlers == before


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InvalidTopicError("a b"), ConfigError),
        (UnsupportedVersionError("too old"), ConfigError),
        (TopicAuthorizationFailedError("t"), ConfigError),
        (KafkaTimeoutError("30 s"), Unreachable),
        (NotLeaderForPartitionError("t-0"), Unreachable),
    ],
    ids=lambda one: getattr(one, "__name__", None) or type(one).__name__,
)
def test_sources_and_sinks_take_the_same_errors_for_a_refusal(error: KafkaError, kind: type) -> None:
    assert type(our_error(error, "broker:9092", "reading")) is kind
    assert isinstance(error, REFUSED) is (kind is ConfigError), "by which sources go"
