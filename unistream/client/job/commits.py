"""The commits of all jobs, in the order in which they became known: what became visible in which sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from unistream.base.config import Configuration
from unistream.client.job.submission import connect
from unistream.client.machine.job_history import open_history
from unistream.port.metadata import PAGE_ROWS, OutboxRecord

PAGES_MAX: Final = 100  # of one reading: 100,000 commits; the rest is read the next time


Read: TypeAlias = Callable[[int, int], Sequence[OutboxRecord]]
"""(after, limit) -> a page."""


def commits_after(seq: int, *, config: Configuration, target: str) -> Iterator[Sequence[OutboxRecord]]:
    """Pages of the outbox behind commit `seq`, the oldest first; 0: from the first that is kept.

    Args:
        seq: The last that is known.
        config: Which cluster, or which history.
        target: "remote": of a cluster; else of the history on this machine.

    Raises:
        Unreachable: the cluster, or the database, does not answer.
        ConfigError: the database cannot be used.
    """
    if target == "remote":
        with connect(config) as cluster:
            yield from _pages(seq, cluster.commits)
        return
    with open_history(config) as store:
        if store is not None:
            yield from _pages(seq, store.outbox)


def _pages(seq: int, read: Read) -> Iterator[Sequence[OutboxRecord]]:
    for _ in range(PAGES_MAX):
        page = read(seq, PAGE_ROWS)
        if page:
            yield page
            seq = page[-1].seq
        if len(page) < PAGE_ROWS:
            return
