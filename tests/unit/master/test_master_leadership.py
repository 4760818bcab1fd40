"""A master that is suspended decides nothing; one that was revoked never again."""

from __future__ import annotations

import threading

import pytest

from tests.eventually import WAIT_S, eventually
from unistream.base.errors import Unreachable
from unistream.client.machine.background import in_background
from unistream.master.store.leadership import Leadership


class Store:
    """Only whether it leads counts here."""

    leading = True

    def leads(self) -> bool:
        return self.leading


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def leadership(store: Store) -> Leadership:
    return Leadership(store)  # type: ignore[arg-type]


def test_who_leads_does_not_wait(leadership: Leadership) -> None:
    assert leadership.await_leading() is None
    leadership.demand()
    leadership.end_unless_leading("shut down")
    assert leadership.over is None


def test_a_decision_waits_for_the_end_of_a_suspension(store: Store, leadership: Leadership) -> None:
    store.leading = False
    began = threading.Event()

    def wait() -> str | None:
        began.set()
        return leadership.await_leading()

    decision = in_background(wait, "decision")
    began.wait(WAIT_S)
    with pytest.raises(Unreachable, match="decides nothing now: it has no contact"):
        leadership.demand()
    assert not decision.done()
    store.leading = True
    leadership.resumed()
    assert decision.result(WAIT_S) is None
    leadership.demand()


def test_a_suspension_that_ends_in_a_revocation_is_never_decided_on(
    store: Store, leadership: Leadership
) -> None:
    store.leading = False
    decision = in_background(leadership.await_leading, "decision")
    leadership.end("another one leads")
    assert decision.result(WAIT_S) == "another one leads"
    store.leading = True
    assert leadership.await_leading() == "another one leads"
    leadership.end("later")
    assert leadership.over == "another one leads"
    with pytest.raises(Unreachable, match="another one leads"):
        leadership.demand()


def test_a_shutdown_does_not_wait_for_the_end_of_a_suspension(store: Store, leadership: Leadership) -> None:
    store.leading = False
    leadership.end_unless_leading("shut down")
    eventually(lambda: leadership.await_leading() == "shut down", "it is over")
    assert leadership.over == "shut down"


def test_an_attempt_that_is_shut_down_is_not_the_end_of_the_next_one(
    store: Store, leadership: Leadership
) -> None:
    store.leading = False
    first = leadership.attempt()
    first.end_unless_leading("it could not begin")
    assert first.await_leading() == "it could not begin"
    store.leading = True
    second = leadership.attempt()
    assert (leadership.over, second.await_leading()) == (None, None)
    store.leading = False
    decision = in_background(second.await_leading, "decision")
    leadership.end("another one leads")
    assert decision.result(WAIT_S) == second.over == "another one leads"
    assert first.over == "it could not begin"
