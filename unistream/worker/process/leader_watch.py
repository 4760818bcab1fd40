"""Which master a standalone worker registers at, where an election decides it.

A worker follows the leader: as soon as another one is published it cancels its tasks and registers there,
also while the former one still answers, and without waiting for its own lease to end.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from unistream.base.clock import Clock
from unistream.base.closing import Closing
from unistream.base.errors import ConfigError, UnistreamError, Unreachable
from unistream.base.ids import LeaderEpoch
from unistream.port.ha import LeaderInfo, LeaderRetrieval
from unistream.worker.process.reports import OnSilence

LOOK_S: Final = 0.5  # between two looks
ANSWER_S: Final = 5.0  # longest wait for the answer to one

_log = logging.getLogger(__name__)


def await_leader(
    leaders: LeaderRetrieval,
    *,
    clock: Clock,
    patience_ms: int,
    stop: threading.Event,
    on_silence: OnSilence,
) -> LeaderInfo | None:
    """The leader, as soon as there is one; None: `stop` was set.

    Raises:
        Unreachable: nobody has led for `patience_ms`, or nobody can say.
        ConfigError: the leader takes no workers of users.
    """
    began_ms = clock.monotonic_ms()
    while not stop.is_set():
        try:
            leader = leaders.leader(ANSWER_S)
            why = Unreachable("nobody leads the cluster now")
        except Unreachable as error:
            leader, why = None, error
        if leader is not None:
            if leader.control is None:
                raise ConfigError(
                    f"the leader of the cluster ({leader.cluster}) starts its workers itself; workers of "
                    "users join a cluster that was started with --target standalone"
                )
            return leader
        silent_ms = clock.monotonic_ms() - began_ms
        on_silence(silent_ms, why)
        if silent_ms >= patience_ms:
            raise why
        stop.wait(LOOK_S)
    return None


class LeaderWatch(Closing):
    """Looks for another leader, on a thread of its own, from construction until `close`.

    Args:
        leaders: Used by this thread only until `close`.
        epoch: Of the leader that is known.
        on_change: Called once, with the reason.
    """

    def __init__(
        self, leaders: LeaderRetrieval, epoch: LeaderEpoch, on_change: Callable[[str], None]
    ) -> None:
        self._leaders = leaders
        self._epoch = epoch
        self._on_change = on_change
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leader-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join(2 * ANSWER_S)

    def _run(self) -> None:
        while not self._closed.wait(LOOK_S):
            try:
                leader = self._leaders.leader(ANSWER_S)
            except UnistreamError as error:  # the lease says when the master is lost
                _log.info("event=leader_unknown reason=%s", error)
                continue
            if leader is not None and leader.epoch > self._epoch:
                self._on_change(f"{leader.cluster} leads the cluster now, with epoch {leader.epoch}")
                return
