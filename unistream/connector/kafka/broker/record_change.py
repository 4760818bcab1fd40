"""A record of a Kafka group, replaced by compare-and-set."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final

from unistream.base.crash_points import crash_point
from unistream.base.errors import Fenced, Transient
from unistream.connector.kafka.broker.calls import RETRY_S
from unistream.connector.kafka.broker.wire import GroupOffset, Producing, TransactionEnd

CHANGES_MAX: Final = 20  # tries, against as many others
CHANGE_TIMEOUT_MS: Final = 10_000  # of a transaction that takes some milliseconds


def change_record(
    producing: Producing,
    transactional_id: str,
    group: str,
    topic: str,
    decide: Callable[[GroupOffset | None], tuple[int, str] | None],
) -> GroupOffset | None:
    """Replaces what a group records, if nobody else does meanwhile: a compare-and-set.

    Who begins a transaction of that id ends the one of everybody else, and reads only then; so of two
    that have read the same, one can write.

    Args:
        producing: To the cluster.
        transactional_id: Only for changes of this group.
        group: In which it is recorded; see `record`.
        topic: The same.
        decide: Given what is recorded, the new label and note; None: nothing is written. May be called
            several times. What it raises ends the change.

    Returns:
        What is recorded now.

    Raises:
        OutcomeUnknown: no broker has confirmed it.
        Transient: others change it again and again.
    """
    for attempt in range(CHANGES_MAX):
        with contextlib.suppress(Fenced):  # somebody else has begun a change
            producer = producing.begin(transactional_id, CHANGE_TIMEOUT_MS)
            noted = producing.noted(group, topic, settled=True)
            new = decide(noted)
            if new is None:
                return noted
            producing.record(transactional_id, producer, group, topic, new[0], note=new[1])
            crash_point("kafka.line_written")
            if producing.end(transactional_id, producer, commit=True) is TransactionEnd.DONE:
                return GroupOffset(*new)
        time.sleep(RETRY_S * attempt)
    raise Transient(
        f"Kafka at {producing.servers}: others have changed what group {group!r} records {CHANGES_MAX} times"
    )
