"""A process becomes a worker only if its host will know of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from unistream.base.ids import TaskManagerId
from unistream.host.claims import Claims, claim

WORKER = TaskManagerId("tm-1")


@pytest.fixture
def claims() -> Iterator[Claims]:
    claims = Claims()
    yield claims
    claims.close()


def test_who_claims_in_time_is_known(claims: Claims) -> None:
    folder = claims.offer(WORKER)
    assert claim(folder)
    assert claims.withdraw(WORKER) == os.getpid()


def test_who_comes_after_the_withdrawal_must_not_begin(claims: Claims) -> None:
    folder = claims.offer(WORKER)
    assert claims.withdraw(WORKER) is None
    assert not claim(folder)


def test_a_withdrawal_may_be_repeated(claims: Claims) -> None:
    claim(claims.offer(WORKER))
    claims.withdraw(WORKER)
    assert claims.withdraw(WORKER) is None


def test_nothing_is_left_and_nobody_can_claim_after_close(claims: Claims) -> None:
    folder = claims.offer(WORKER)
    claims.close()
    assert not Path(folder).exists()
    assert not claim(folder)
