"""A client that waits for something does not mind that its cluster is away for a while, or that what answers
for it does not make sense: a proxy whose cluster is away, or a master that is just being replaced."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from unistream.base.errors import (
    ClusterEnded,
    ConfigError,
    NotFound,
    ProtocolError,
    UnistreamError,
    Unreachable,
)

ANSWER_MIN_S: Final = 5.0  # a cluster has at least this long for an answer, however short the caller waits
RECOVERY_S: Final = 10.0  # a cluster that was started again may still be finding its jobs

T = TypeVar("T")


class Absence:
    """How long a cluster has been away from one client that waits.

    Args:
        limit_s: `client.timeout`: an absence that lasts longer is an error.
        heard: It has answered before, and knew what is waited for.
        recovery_s: How long it may not know it after a restart.
        refusable: A refusal is an answer. False: what is asked has been answered before, so a refusal says
            something of whatever refuses it, and not of what is asked.

    Attributes:
        heard: The same, by now.
    """

    def __init__(
        self, limit_s: float, *, heard: bool, recovery_s: float = RECOVERY_S, refusable: bool = True
    ) -> None:
        self._limit_s = limit_s
        self._recovery_s = min(recovery_s, limit_s)
        self._no_answers = (
            (Unreachable, ProtocolError) if refusable else (Unreachable, ProtocolError, ConfigError)
        )
        self.heard = heard
        self._silent_since_s: float | None = None
        self._unknown_since_s: float | None = None

    @property
    def is_current(self) -> bool:
        """The last question has no answer."""
        return self._silent_since_s is not None

    def ask(self, call: Callable[[float], T], left_s: float | None = None) -> T | None:
        """The answer; None: it is away, or does not know yet what it knew, so ask again later.

        Args:
            call: Asks with a timeout in seconds.
            left_s: How long the caller waits; None: for ever.

        Raises:
            Unreachable: it has been away for too long, or has never answered.
            ProtocolError: what it has answered, and it has never answered anything else. Later it counts as
                away.
            NotFound: it does not know what is asked for: it never has, or not for `recovery_s` by now.
        """
        timeout_s = self._limit_s if left_s is None else min(self._limit_s, max(left_s, ANSWER_MIN_S))
        began_s = time.monotonic()
        try:
            answer = call(timeout_s)
        except NotFound:
            self._silent_since_s = None
            if not self.heard:
                raise
            if self._unknown_since_s is None:
                self._unknown_since_s = began_s
            if time.monotonic() - self._unknown_since_s >= self._recovery_s:
                raise
            return None
        except self._no_answers as error:
            if not self.heard or isinstance(error, ClusterEnded):
                raise
            if self._silent_since_s is None:
                self._silent_since_s = began_s
            away_s = time.monotonic() - self._silent_since_s
            if away_s < self._limit_s * 0.99:  # one call that has used all of it has ended a little earlier
                return None
            if isinstance(error, Unreachable) and timeout_s >= self._limit_s:
                raise
            raise _given_up(error, away_s) from error
        self.heard, self._silent_since_s, self._unknown_since_s = True, None, None
        return answer


def _given_up(error: UnistreamError, away_s: float) -> Unreachable:
    if isinstance(error, Unreachable):
        return type(error)(f"{error}; it has been away for {away_s:.0f} s, longer than client.timeout allows")
    return Unreachable(
        f"{error}; there has been no other answer for {away_s:.0f} s, longer than client.timeout allows"
    )
