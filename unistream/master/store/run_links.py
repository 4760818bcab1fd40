"""Links between runs of an orchestrator and jobs, with all times of one clock: that of this process, which
writes the database. The clocks of the machines where the runs are do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from unistream.base.clock import Clock
from unistream.base.errors import ConfigError
from unistream.base.ids import JobId
from unistream.port.run_links import RunLink, RunLinks, SeenLink, Watcher, check_link

SILENT_MS_MAX: Final = 30 * 86_400_000  # 30 days: longer is a mistake of units


class StampedLinks:
    """`unistream.port.run_links.RunLinks`; its caller names no time. Thread-safe.

    Args:
        links: Of the database.
        clock: Stamps them.
        check: Called first; raises Unreachable if the database is known to be away.

    Raises:
        ConfigError: from any method: a key or a watcher cannot be stored.
        Unreachable: from any method: the database does not answer.
    """

    def __init__(self, links: RunLinks, clock: Clock, check: Callable[[], None] = lambda: None) -> None:
        self._links = links
        self._clock = clock
        self._check = check

    def attach(self, key: str, job: JobId, watcher: Watcher) -> RunLink:
        check_link(key, watcher)
        self._check()
        return self._links.attach(key, job, watcher, self._clock.wall_ms())

    def heartbeat(self, key: str, watcher: Watcher) -> bool:
        check_link(key, watcher)
        self._check()
        return self._links.heartbeat(key, watcher, self._clock.wall_ms())

    def release(self, key: str, watcher: Watcher) -> bool:
        check_link(key, watcher)
        self._check()
        return self._links.release(key, watcher, self._clock.wall_ms())

    def take_over(self, key: str, watcher: Watcher, *, silent_ms: int) -> RunLink | None:
        """See the port. Raises ConfigError: `silent_ms` is negative or above 30 days."""
        check_link(key, watcher)
        if not 0 <= silent_ms <= SILENT_MS_MAX:
            raise ConfigError(f"silent_ms: {silent_ms} is not 0 to {SILENT_MS_MAX}")
        self._check()
        return self._links.take_over(key, watcher, self._clock.wall_ms(), silent_ms)

    def find(self, key: str) -> SeenLink:
        """The link of `key` now."""
        check_link(key)
        self._check()
        return SeenLink(link=self._links.job_of_key(key), now_ms=self._clock.wall_ms())

    def of_job(self, job: JobId) -> list[RunLink]:
        """Links that name `job`; the newest first."""
        self._check()
        return self._links.keys_of_job(job)
