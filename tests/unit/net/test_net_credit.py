"""When a grant is worth a message, and that holding it back starves nobody."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unistream.base.errors import ConfigError, ProtocolError
from unistream.net.in_channel import Credit
from unistream.net.wire import CREDITS_MAX


@pytest.mark.parametrize("first", [0, -1, CREDITS_MAX + 1])
def test_a_channel_opens_with_some_credit(first: int) -> None:
    with pytest.raises(ConfigError, match="bytes of credit"):
        Credit(first)


def test_grants_are_held_back_until_they_are_half_of_the_most() -> None:
    credit = Credit(100)
    credit.arrived(60)
    credit.grant(49)
    assert credit.take_due() == 0
    credit.grant(1)
    assert credit.take_due() == 50
    assert credit.take_due() == 0


def test_what_is_needed_and_was_granted_is_sent_at_once() -> None:
    credit = Credit(100)
    credit.arrived(60)
    credit.grant(20)
    assert credit.take_due() == 0
    assert not credit.need(61)
    assert credit.take_due() == 0
    assert credit.need(60)
    assert credit.take_due() == 20


def test_who_asks_again_is_told_all_at_once() -> None:
    credit = Credit(100)
    credit.grant(5)
    assert credit.open() == 105
    assert credit.held_back == 0


def test_more_than_was_granted_is_a_protocol_error() -> None:
    credit = Credit(100)
    credit.arrived(100)
    with pytest.raises(ProtocolError, match="more bytes than it had credit for"):
        credit.arrived(1)


@given(st.lists(st.integers(1, 120), min_size=1, max_size=60), st.integers(1, 100))
def test_a_producer_that_waits_gets_what_there_is(batches: list[int], first: int) -> None:
    """Invariant I13: what the producer has and what is held back are what may still arrive, and where all
    that has arrived is granted again every batch passes."""
    credit, at_producer = Credit(first), first
    window = first
    for size in batches:
        if size > at_producer and not credit.need(size):
            credit.grant(size - credit.room)
            window = max(window, credit.room)
        at_producer += credit.take_due()
        assert size <= at_producer, "it starves"
        at_producer -= size
        credit.arrived(size)
        credit.grant(size)
        at_producer += credit.take_due()
        assert at_producer + credit.held_back == credit.room == window
