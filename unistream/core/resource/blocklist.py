"""Hosts that lost workers again and again: avoided for a time. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRules:
    """When a host is blocked, and for how long.

    Attributes:
        failures: Workers lost within `window_ms` after which their host is blocked; 0: never.
        elsewhere: Workers can be put on other hosts than those that have some already. Without it a host
            is blocked only while another one has workers.
    """

    failures: int = 0
    window_ms: int = 600_000
    block_ms: int = 60_000
    elsewhere: bool = False


class Blocklist:
    """Counts failures by host. A host without a name is never blocked."""

    def __init__(self, rules: BlockRules) -> None:
        self._rules = rules
        self._failures: dict[str, deque[int]] = {}
        self._until_ms: dict[str, int] = {}

    def failed(self, host: str, now_ms: int, *, alternative: bool) -> bool:
        """A worker was lost there, or could not start. True: the host is blocked from now on.

        What fails on a host that is blocked already says nothing new, and does not make it longer.
        `alternative`: another host that is not blocked has workers.
        """
        rules = self._rules
        if not host or not rules.failures or self.left_ms(host, now_ms):
            return False
        failures = self._failures.setdefault(host, deque(maxlen=rules.failures))
        failures.append(now_ms)
        often = len(failures) == rules.failures and now_ms - failures[0] <= rules.window_ms
        if not often or not (alternative or rules.elsewhere):
            return False
        self._until_ms[host] = now_ms + rules.block_ms
        failures.clear()
        return True

    def left_ms(self, host: str, now_ms: int) -> int:
        """How much longer the host is blocked; 0: it is not."""
        return max(0, self._until_ms.get(host, 0) - now_ms)

    def expire(self, now_ms: int) -> tuple[str, ...]:
        """Hosts that are blocked no longer; each is told once."""
        over = tuple(host for host, until_ms in self._until_ms.items() if until_ms <= now_ms)
        for host in over:
            del self._until_ms[host]
        self._failures = {
            host: failures
            for host, failures in self._failures.items()
            if failures and now_ms - failures[-1] <= self._rules.window_ms
        }
        return over

    def shut(self, now_ms: int, hosts: Iterable[str]) -> frozenset[str]:
        """Blocked hosts that get nothing to do: as long as one of `hosts`, which have workers, is not
        blocked, or workers can be put elsewhere."""
        blocked = frozenset(self.hosts(now_ms))
        if not blocked or self._rules.elsewhere or any(host not in blocked for host in hosts):
            return blocked
        return frozenset()

    def hosts(self, now_ms: int) -> tuple[str, ...]:
        """Those that are blocked now."""
        return tuple(host for host in self._until_ms if self.left_ms(host, now_ms))
