"""What a task's thread sleeps on."""

from __future__ import annotations

import threading

import pytest

from unistream.worker.task import Mailbox


@pytest.mark.parametrize("timeout_s", [9_223_372_037.0, 1e15, float("inf")])
def test_a_time_that_no_platform_can_wait_for_is_cut_short(
    timeout_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer may be registered for any time. (Here the longest time to wait is one that a test has.)"""
    monkeypatch.setattr(threading, "TIMEOUT_MAX", 0.001)
    mailbox = Mailbox()
    mailbox.prepare_wait()
    mailbox.wait(timeout_s)
    assert mailbox.take() is None
