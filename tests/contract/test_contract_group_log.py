"""The log of a commit group, wherever it is: records in order, each number once, whoever writes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from uuid import uuid4

import pytest

from tests.eventually import WAIT_S
from unistream.connector.group.logs import log_at
from unistream.port.group import GroupCommit, GroupLog, TableVersion

Open = Callable[[], GroupLog]
WRITERS = 4


def record(number: int, job: str = "a", group: str = "shop") -> GroupCommit:
    tables = {"t": TableVersion(kind="delta", address="/t", version=number)}
    return GroupCommit(
        group=group, number=number, lineage="l", job=job, checkpoint=number, committed_ms=7, tables=tables
    )


@pytest.fixture(params=["folder", "s3", "sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "folder":
            return str(tmp_path / "groups")
        case "s3":
            request.getfixturevalue("s3")
            return f"s3://unistream/groups/{uuid4().hex}"
        case "sqlite":
            return f"sqlite:///{tmp_path / 'groups.db'}"
        case _:
            return str(request.getfixturevalue("postgres").new_database())


@pytest.fixture
def opened(where: str) -> Iterator[Callable[..., GroupLog]]:
    logs: list[GroupLog] = []

    def make(group: str = "shop") -> GroupLog:
        logs.append(log_at(where, group))
        return logs[-1]

    yield make
    for log in logs:
        log.close()


def test_the_newest_record_is_found_by_others(opened: Callable[..., GroupLog]) -> None:
    log = opened()
    assert log.newest() is None
    for number in (1, 2, 3):
        assert log.append(record(number))
        assert opened().newest() == record(number)


def test_a_number_is_given_once(opened: Callable[..., GroupLog]) -> None:
    log = opened()
    assert log.append(record(1))
    assert not opened().append(record(1, job="b"))
    assert log.newest() == record(1)


def test_groups_do_not_see_each_other(opened: Callable[..., GroupLog]) -> None:
    assert opened("shop").append(record(1))
    assert opened("bank").newest() is None
    assert opened("bank").append(record(1, group="bank"))
    assert opened("shop").newest() == record(1)


def test_of_those_who_write_at_once_one_succeeds(opened: Callable[..., GroupLog]) -> None:
    assert opened().append(record(1))
    start = Barrier(WRITERS)

    def write(job: str) -> bool:
        log = opened()
        start.wait(WAIT_S)
        return log.append(record(2, job=job))

    with ThreadPoolExecutor(WRITERS) as pool:
        jobs = [f"job {number}" for number in range(WRITERS)]
        won = [job for job, done in zip(jobs, pool.map(write, jobs), strict=True) if done]
    assert len(won) == 1
    assert opened().newest() == record(2, job=won[0])
