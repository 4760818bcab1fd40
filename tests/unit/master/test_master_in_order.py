"""Work that is done one piece at a time, on threads that others use too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from tests.eventually import WAIT_S
from unistream.master.loop.ordered import InOrder, Pool


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool("test-pool", threads=3)
    yield pool
    assert pool.close(WAIT_S)


def test_pieces_never_overlap_and_keep_their_order(pool: Pool) -> None:
    order, done, alone = InOrder(pool), list[int](), threading.Lock()

    def work(number: int) -> None:
        assert alone.acquire(blocking=False), "two at a time"
        try:
            done.append(number)
        finally:
            alone.release()

    futures = [order.submit(work, number) for number in range(200)]
    for future in futures:
        future.result(WAIT_S)
    assert done == list(range(200))


def test_others_use_the_pool_meanwhile(pool: Pool) -> None:
    order, held = InOrder(pool), threading.Event()
    first = order.submit(held.wait, WAIT_S)
    second = order.submit(held.is_set)
    assert pool.submit(held.set).result(WAIT_S) is None, "a thread was free"
    first.result(WAIT_S)
    second.result(WAIT_S)


def test_a_failure_is_told_and_the_next_one_runs(pool: Pool) -> None:
    order, done = InOrder(pool), threading.Event()

    def fail() -> None:
        raise OSError("no")

    failed, after = order.submit(fail), order.submit(done.set)
    with pytest.raises(OSError, match="no"):
        failed.result(WAIT_S)
    after.result(WAIT_S)
    assert done.is_set()


def test_after_the_pool_was_closed_nothing_runs() -> None:
    pool = Pool("test-pool", threads=1)
    order, done = InOrder(pool), threading.Event()
    assert pool.close(WAIT_S)
    for _ in range(2):
        with pytest.raises(CancelledError):
            order.submit(done.set).result(WAIT_S)
    assert not done.is_set()
