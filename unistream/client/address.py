"""Where a cluster is reached: at a fixed URL, or wherever its leader is at the moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from unistream.base.closing import Closing
from unistream.base.errors import ConfigError, Unreachable
from unistream.port.ha import LeaderRetrieval


class LeaderAddress(Protocol):
    """Where the leader of one cluster answers. Thread-safe. Asked before the first call, and again after each
    attempt without an answer: meanwhile another process may have been elected."""

    @property
    def name(self) -> str:
        """For messages: the URL, or where the leader is looked up."""
        ...

    @property
    def is_elected(self) -> bool:
        """It may change, so a client waits for it where nothing listens."""
        ...

    def url(self, timeout_s: float) -> str:
        """Of the leader's REST API, without a path.

        Raises:
            Unreachable: nobody leads, or nobody can say, for `timeout_s`.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FixedAddress:
    """One URL, such as ``http://127.0.0.1:8081``. Raises ConfigError if it is none."""

    name: str
    is_elected: bool = False

    def __post_init__(self) -> None:
        if not self.name.startswith(("http://", "https://")):
            raise ConfigError(f"{self.name!r} is not the address of a REST API, like http://127.0.0.1:8081")

    def url(self, timeout_s: float) -> str:
        return self.name

    def close(self) -> None:
        """It holds nothing."""


class ElectedAddress(Closing):
    """The leader that an election has published.

    Args:
        retrieval: Finds it; closed with this.
        name: Where it is looked up, such as ``zookeeper://host:2181/unistream/default``.
    """

    def __init__(self, retrieval: LeaderRetrieval, name: str) -> None:
        self._retrieval = retrieval
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    @property
    def is_elected(self) -> bool:
        return True

    def url(self, timeout_s: float) -> str:
        leader = self._retrieval.leader(timeout_s)
        if leader is None:
            raise Unreachable(f"nobody leads the cluster at {self._name} now")
        if leader.rest_url is None:
            raise Unreachable(f"the leader of the cluster at {self._name} ({leader.cluster}) has no REST API")
        return leader.rest_url.rstrip("/")

    def close(self) -> None:
        self._retrieval.close()
