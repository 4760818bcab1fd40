"""The channels of an input whose rows come bucket by bucket: who waits, and when a bucket is complete."""

from __future__ import annotations

import random
from typing import Any

import pytest

from unistream.core.task import BucketAlignment
from unistream.model.elements import EndOfBucket

END = "end of data"


def step(aligned: BucketAlignment, channel: int, what: Any) -> int | None:
    """`what`: a bucket that ends there, or END."""
    ended = (
        aligned.on_end_of_data(channel)
        if what is END
        else aligned.on_end_of_bucket(channel, EndOfBucket(what, 16))
    )
    assert ended is None or ended.count == 16
    return None if ended is None else ended.number


@pytest.mark.parametrize(
    ("channels", "steps"),
    [
        pytest.param(1, [(0, 0, 0, ""), (0, 1, 1, ""), (0, END, None, "")], id="one waits for nobody"),
        pytest.param(
            2,
            [(0, 0, None, "0"), (1, 0, 0, ""), (1, 1, None, "1"), (0, 1, 1, "")],
            id="the one that is ahead waits",
        ),
        pytest.param(
            3,
            [(2, 0, None, "2"), (0, 0, None, "02"), (1, END, 0, ""), (0, 1, None, "0"), (2, 1, 1, "")],
            id="one that ends holds back nobody",
        ),
        pytest.param(
            2, [(0, END, None, ""), (1, END, None, "")], id="without buckets the end of event time says it"
        ),
        pytest.param(
            2,
            [(0, 0, None, "0"), (1, END, 0, ""), (0, 1, 1, ""), (0, END, None, "")],
            id="rows in no order come before the first bucket is complete",
        ),
        pytest.param(
            2,
            [(0, 15, None, "0"), (1, 3, 3, "0"), (1, 15, 15, "")],
            id="several buckets may end at once",
        ),
    ],
)
def test_steps(channels: int, steps: list[tuple[int, Any, int | None, str]]) -> None:
    """(channel, what ends there, the buckets that are complete then, the channels that wait then)."""
    aligned = BucketAlignment(channels)
    for number, (channel, what, complete, waiting) in enumerate(steps):
        assert step(aligned, channel, what) == complete, f"step {number}"
        blocked = "".join(str(n) for n in range(channels) if aligned.is_blocked(n))
        assert blocked == waiting, f"step {number}"


@pytest.mark.parametrize("seed", range(50))
def test_a_bucket_is_complete_once_and_when_no_channel_has_rows_of_it(seed: int) -> None:
    """Random channels, of which some are in no order: no deadlock, and all buckets in their order."""
    chance = random.Random(seed)
    channels = chance.randint(1, 5)
    left = [[END] if chance.random() < 0.3 else [*range(16), END] for _ in range(channels)]
    ordered = any(len(steps) > 1 for steps in left)
    aligned, complete = BucketAlignment(channels), []
    while any(left):
        free = [n for n in range(channels) if left[n] and not aligned.is_blocked(n)]
        assert free, "somebody can always go on"
        channel = chance.choice(free)
        ended = step(aligned, channel, left[channel].pop(0))
        if ended is not None:
            complete.append(ended)
            rest = [steps[0] for steps in left if steps]
            assert all(what is END or what > ended for what in rest)
    assert complete == (list(range(16)) if ordered else [])
