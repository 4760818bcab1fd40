"""Commits everything that is due: checkpoint by checkpoint, or all in one call, with retries.

Runs on any thread, one call at a time. Another thread may call `close` meanwhile, which takes effect at the
end of the call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from unistream.base.config import COMMITTER_RETRIES
from unistream.base.errors import Transient
from unistream.base.ids import CheckpointId
from unistream.operator.sink.committables import Due
from unistream.port import sink as sink_port
from unistream.port.operator import CommitPermit


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The result of one call, with its retries.

    Attributes:
        checkpoint_id: The newest checkpoint of the call.
        count: Number of committables.
        failed: Committables that can never be committed.
        retries: Number of retried committables.
    """

    checkpoint_id: CheckpointId
    count: int
    result: sink_port.CommitResult
    failed: tuple[bytes, ...] = ()
    reason: str = ""
    retries: int = 0


class CommitRounds:
    """A committer with its retries.

    Args:
        retries: More rounds after the first; then the task fails.
    """

    def __init__(self, committer: sink_port.Committer, sink: str, retries: int) -> None:
        self._committer = committer
        self._sink = sink
        self._retries = retries
        self._guard = threading.Lock()
        self._running = False
        self._closing = False

    def open(self, context: sink_port.SinkContext) -> None:
        self._committer.open(context)

    @property
    def sees_empty(self) -> bool:
        """`run` does something without committables, too."""
        return isinstance(self._committer, sink_port.SeesEmptyCheckpoints)

    def close(self) -> None:
        """Closes the committer at once, or at the end of the current call."""
        with self._guard:
            if self._running:
                self._closing = True
                return
        self._committer.close()

    def run(self, permit: CommitPermit, due: Sequence[Due]) -> list[Committed]:
        """Commits everything that is due, in order. An exception of the committer leaves the rest
        uncommitted.

        Raises:
            Transient: the committer requested more retries than are configured.
        """
        requests = [sink_port.CommitRequest(one.checkpoint_id, one.payloads) for one in due if one.payloads]
        with self._guard:
            if self._closing:
                return []
            self._running = True
        try:
            if not requests and isinstance(self._committer, sink_port.SeesEmptyCheckpoints):
                self._committer.empty_checkpoint(permit)
            if isinstance(self._committer, sink_port.JointCommitter):
                joint = self._committer
                return [self._all_rounds(lambda r: joint.commit_all(permit, r), requests)] if requests else []
            commit = self._committer.commit
            return [self._all_rounds(lambda r: commit(permit, r[0]), [request]) for request in requests]
        finally:
            with self._guard:
                self._running = False
                closing = self._closing
            if closing:
                self._committer.close()

    def _all_rounds(
        self,
        commit: Callable[[Sequence[sink_port.CommitRequest]], sink_port.CommitResult],
        requests: Sequence[sink_port.CommitRequest],
    ) -> Committed:
        newest, count = requests[-1].checkpoint_id, sum(len(one.committables) for one in requests)
        failed: list[bytes] = []
        visible: dict[CheckpointId, sink_port.VisibleRows] = {}
        reason, rows, retries = "", 0, 0
        for _ in range(self._retries + 1):
            result = commit(requests)
            if result.outcome is sink_port.CommitOutcome.FAILED and not result.failed:
                result = replace(result, failed=tuple(p for one in requests for p in one.committables))
            failed += result.failed
            reason = result.reason or reason
            if result.outcome is not sink_port.CommitOutcome.RETRY or result.again is not None:
                rows += result.rows
                visible |= {one.checkpoint_id: one for one in result.visible}
            left = _unfinished(requests, result) if result.outcome is sink_port.CommitOutcome.RETRY else []
            if not left or self._closing:
                return Committed(
                    checkpoint_id=newest,
                    count=count,
                    result=replace(result, rows=rows, visible=tuple(visible.values())),
                    failed=tuple(failed),
                    reason=reason,
                    retries=retries,
                )
            requests = left
            unfinished = sum(len(one.committables) for one in requests)
            retries += unfinished
        raise Transient(
            f"sink {self._sink!r}: failed to commit {unfinished} committables of "
            f"checkpoint {newest} in {self._retries + 1} attempts ({COMMITTER_RETRIES.key})"
        )


def _unfinished(
    requests: Sequence[sink_port.CommitRequest], result: sink_port.CommitResult
) -> list[sink_port.CommitRequest]:
    """The requests of the next round: a committable stays with its checkpoint, a changed one is added to the
    newest."""
    known = {payload for one in requests for payload in one.committables}
    again = known - set(result.failed) if result.again is None else set(result.again)
    changed = tuple(payload for payload in result.again or () if payload not in known)
    kept = [replace(r, committables=tuple(p for p in r.committables if p in again)) for r in requests]
    kept[-1] = replace(kept[-1], committables=kept[-1].committables + changed)
    return [one for one in kept if one.committables]
