"""Alignment of the channels of an input whose rows come bucket by bucket (`model.key_buckets`).

A channel that is at the end of a bucket waits until the others are, so that only the rows of one bucket, and
those of channels that are not in this order, are on their way.

    reading bucket b ── EndOfBucket(b) ──► blocked ── the last channel's EndOfBucket(b) ──► reading b + 1
            └─────── end of its data ────► ended: it holds back nobody
"""

from __future__ import annotations

from typing import Final

from unistream.model.elements import EndOfBucket

_ALL: Final = 1 << 62


class BucketAlignment:
    """The alignment of the channels of one logical input.

    >>> aligned = BucketAlignment(2)
    >>> aligned.on_end_of_bucket(0, EndOfBucket(0, 64)), aligned.is_blocked(0)
    (None, True)
    >>> aligned.on_end_of_bucket(1, EndOfBucket(0, 64)), aligned.is_blocked(0)
    (EndOfBucket(number=0, count=64), False)
    """

    def __init__(self, channels: int) -> None:
        self._passed = [-1] * channels
        self._last: EndOfBucket | None = None  # that came
        self._least = -1

    def is_blocked(self, channel: int) -> bool:
        """It has passed more than the others."""
        return self._passed[channel] > self._least and self._passed[channel] != _ALL

    def on_end_of_bucket(self, channel: int, event: EndOfBucket) -> EndOfBucket | None:
        """The buckets whose rows have all come now; None: no more than before."""
        self._passed[channel] = event.number
        self._last = event
        return self._advanced()

    def on_end_of_data(self, channel: int) -> EndOfBucket | None:
        """The buckets whose rows have all come when this channel has no more; None: no more than before."""
        self._passed[channel] = _ALL
        return self._advanced()

    def _advanced(self) -> EndOfBucket | None:
        least = min(self._passed)
        if least == self._least:
            return None
        self._least = least
        # when all channels have ended, so has the input: the end of event time says that
        return None if least == _ALL or self._last is None else EndOfBucket(least, self._last.count)
