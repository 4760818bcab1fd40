"""A signal whose exception got lost is noticed by who waits."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import pytest

from unistream.cli.run import _Noticed


@pytest.fixture
def noticed() -> Iterator[_Noticed]:
    noticed = _Noticed(lambda _number: KeyboardInterrupt())
    before = signal.signal(signal.SIGINT, lambda number, _frame: noticed.notice(number))
    yield noticed
    signal.signal(signal.SIGINT, before)


class Interrupted:
    """Its end is interrupted, where Python ignores every exception."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_ignores_is_raised_by_the_next_check(noticed: _Noticed) -> None:
    noticed.check()
    Interrupted()
    gc.collect()
    with pytest.raises(KeyboardInterrupt):
        noticed.check()


def test_an_interrupt_is_raised_at_once(noticed: _Noticed) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        noticed.check()
