"""How often one token may ask: a bucket for each, so who floods a cluster takes nothing from others.

A request takes one from the bucket, which holds some seconds' worth, and fills up as time passes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

BURST_S: Final = 5.0  # a page that opens, or a sensor that catches up, asks for many things at once
BUCKETS_MAX: Final = 4_096  # more than there can be tokens; full ones are the same as none


class RequestBucket(NamedTuple):
    """What a token had left at a moment. `left`: requests. `at_s`: of a monotonic clock."""

    left: float
    at_s: float


class RequestRates:
    """The buckets of all tokens. Not thread-safe: one event loop asks. `per_s`: requests in a second; 0: any
    number."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._buckets: dict[str, RequestBucket] = {}

    def wait_s(self, token: str, now_s: float) -> float:
        """How long it has to wait; 0: a request is taken, and counts.

        >>> rates = RequestRates(1)
        >>> [rates.wait_s("a", 0.0) for _ in range(6)], rates.wait_s("b", 0.0), rates.wait_s("a", 1.0)
        ([0.0, 0.0, 0.0, 0.0, 0.0, 1.0], 0.0, 0.0)
        """
        if not self._per_s:
            return 0.0
        most = max(1.0, self._per_s * BURST_S)
        known = self._buckets.get(token, RequestBucket(most, now_s))
        left = min(most, known.left + (now_s - known.at_s) * self._per_s)
        if left < 1:
            return (1 - left) / self._per_s
        self._buckets[token] = RequestBucket(left - 1, now_s)
        if len(self._buckets) > BUCKETS_MAX:
            self._drop_full(most, now_s)
        return 0.0

    def _drop_full(self, most: float, now_s: float) -> None:
        self._buckets = {
            token: one
            for token, one in self._buckets.items()
            if one.left + (now_s - one.at_s) * self._per_s < most
        }
