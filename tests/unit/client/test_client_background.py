"""Waits for what runs on another thread."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from unistream.client.machine.background import awaited, in_background


def test_a_wait_that_is_too_short_says_what_for() -> None:
    never: Future[int] = Future()
    with pytest.raises(TimeoutError, match=r"^waited 0 s for the savepoint, which takes longer$"):
        awaited(never, 0.0, "the savepoint")


def test_an_error_is_the_callers_also_if_it_is_a_timeout_of_its_own() -> None:
    def fail() -> int:
        raise TimeoutError("the store did not answer")

    with pytest.raises(TimeoutError, match=r"^the store did not answer$"):
        awaited(in_background(fail, "fails"), 30.0, "the savepoint")


def test_a_value_is_returned() -> None:
    assert awaited(in_background(lambda: 3, "returns"), 30.0, "the third") == 3
