"""Commits to a target that records what was committed, each on exactly what was looked at.

    look     the target as it is now, and what it knows of this sink; refused if another job writes it
    done?    what the record says of the checkpoints  ->  already committed
    check    everything that was staged is there
    commit   rows and record in one step, if nobody has committed since the look
    retry    after a conflict or an unknown outcome: look again; the target shows the result

A connector says how its target is looked at and committed to. When it is tried again, and what is known of
the outcome in the end, is decided here.
"""

from __future__ import annotations

import os
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from unistream.base.errors import CorruptSnapshot, OutcomeUnknown, UnistreamError, Unreachable
from unistream.base.ids import CheckpointId
from unistream.connector.common.committing import CommittableFile
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitOutcome, CommitRequest, CommitResult, SinkContext, VisibleRows

ATTEMPTS_MAX: Final = 20  # of one commit; each conflict is another commit's success
BACKOFF_MAX_S: Final = 0.5
COMMIT_S_MAX: Final = 180.0  # after which no further attempt is made: each may wait for a silent system


class Conflict(UnistreamError):
    """Another commit was faster; ours was not made."""


class Unknown(UnistreamError):
    """The commit may or may not have happened."""


class Committable(Protocol):
    """What one subtask has staged for one checkpoint."""

    @property
    def files(self) -> Sequence[CommittableFile]: ...


C = TypeVar("C", bound=Committable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class CheckpointCommittables(Generic[C]):
    """The committables of one checkpoint."""

    checkpoint_id: int
    staged: tuple[C, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for one in self.staged for file in one.files)


class CommittedVersion(NamedTuple):
    """The target after a commit: its version, and the rows of the whole table, as far as they are known."""

    version: int | None = None
    table_rows: int | None = None


class TargetCommitter(ABC, Generic[V, C]):
    """The one committer of a sink. `V`: its target as it was looked at; `C`: its committables.

    Args:
        where: The target, for messages.
        attempts: Attempts of one commit, after which its outcome is unknown.
    """

    is_sole: Final = True  # the target has one record for each checkpoint

    def __init__(self, where: str, *, attempts: int = ATTEMPTS_MAX) -> None:
        self._where = where
        self._attempts = attempts
        self._context: SinkContext | None = None
        self._jitter = random.Random(os.urandom(8))  # noqa: S311 - spreads retries, guards nothing

    # --- what a connector says ------------------------------------------------------------------------

    @abstractmethod
    def _staged_here(self, request: CommitRequest) -> tuple[C, ...]:
        """The committables of this target. Raises ConfigError if those of a former one are not committed
        there."""

    @abstractmethod
    def _look(self, parts: Sequence[CheckpointCommittables[C]]) -> V:
        """The target as it is now, checked. Raises ConfigError, Fenced, Unreachable."""

    @abstractmethod
    def _todo(self, seen: V, parts: Sequence[CheckpointCommittables[C]]) -> list[CheckpointCommittables[C]]:
        """The parts that are not committed yet. Raises Fenced."""

    @abstractmethod
    def _check(self, seen: V, todo: Sequence[CheckpointCommittables[C]]) -> None:
        """Raises ConfigError if what was staged does not fit, CorruptSnapshot if it is not there."""

    @abstractmethod
    def _has_moved(self, seen: V) -> bool:
        """Whether somebody has committed since the target was looked at, and may have removed what is staged
        here."""

    @abstractmethod
    def _commit(
        self, seen: V, permit: CommitPermit, newest: int, todo: Sequence[CheckpointCommittables[C]]
    ) -> CommittedVersion:
        """Commits on exactly what was seen, up to checkpoint `newest`, remembers it, and tidies up.

        Raises:
            Conflict, Unreachable: nothing was committed.
            Unknown, OutcomeUnknown: it may have been.
        """

    @abstractmethod
    def _found(self, seen: V, newest: int, attempted: Sequence[CheckpointCommittables[C]]) -> int | None:
        """Ends a call that finds everything up to checkpoint `newest` committed already; `attempted`: what it
        has tried. Returns the version of the target."""

    def _turns(self, parts: Sequence[CheckpointCommittables[C]]) -> list[Sequence[CheckpointCommittables[C]]]:
        """What is committed together; all of it, unless a connector says otherwise."""
        return [parts] if parts else []

    # --- a commit -------------------------------------------------------------------------------------

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        """See `unistream.port.sink.Committer`."""
        return self.commit_all(permit, [request])

    def commit_all(self, permit: CommitPermit, requests: Sequence[CommitRequest]) -> CommitResult:
        """See `unistream.port.sink.JointCommitter`: one commit, recorded under the newest checkpoint."""
        permit.require(self._opened().lineage, max(request.checkpoint_id for request in requests))
        parts = [
            CheckpointCommittables(request.checkpoint_id, self._staged_here(request)) for request in requests
        ]
        results: list[CommitResult] = []
        for turn in self._turns([part for part in parts if part.staged]):
            results.append(self._commit_turn(permit, turn))
            if results[-1].outcome is CommitOutcome.RETRY:
                break
        if results:
            return together(results)
        is_done = any(request.committables for request in requests)
        return CommitResult(CommitOutcome.ALREADY_COMMITTED if is_done else CommitOutcome.COMMITTED)

    def _commit_turn(self, permit: CommitPermit, parts: Sequence[CheckpointCommittables[C]]) -> CommitResult:
        newest = max(part.checkpoint_id for part in parts)
        attempted: Sequence[CheckpointCommittables[C]] = ()
        maybe_done: Sequence[CheckpointCommittables[C]] = ()  # by an attempt of unknown outcome
        failure: UnistreamError | None = None  # of the last attempt, unless it met a conflict
        for number in self._tries():  # noqa: B007 - is said behind the loop
            try:
                seen = self._look(parts)
                todo = self._todo(seen, parts)
                if not todo:
                    version = self._found(seen, newest, attempted)
                    return _already(parts, maybe_done, version)
                if not self._is_staged(seen, todo):
                    continue
                attempted, failure = todo, None
                committed = self._commit(seen, permit, newest, todo)
            except Conflict:
                continue
            except (Unknown, OutcomeUnknown) as error:
                maybe_done, failure = attempted, error
            except Unreachable as error:
                if not attempted:
                    raise
                failure = error
            else:
                rows = sum(part.rows for part in todo)
                visible = visible_rows(parts, todo)
                return CommitResult(CommitOutcome.COMMITTED, rows, *committed, visible=visible)
        if failure is None:  # lost every race
            return CommitResult(CommitOutcome.RETRY)
        raise self._given_up(newest, number, failure) if maybe_done else failure

    def _given_up(self, newest: int, attempts: int, failure: UnistreamError) -> OutcomeUnknown:
        unknown = OutcomeUnknown(
            f"{self._where}: whether checkpoint {newest} was committed is unknown after "
            f"{attempts} {'attempts' if attempts > 1 else 'attempt'}: {failure}"
        )
        unknown.__cause__ = failure
        return unknown

    def _is_staged(self, seen: V, todo: Sequence[CheckpointCommittables[C]]) -> bool:
        """Whether everything is there. False: look again. Raises as `_check`."""
        try:
            self._check(seen, todo)
        except CorruptSnapshot:
            if self._has_moved(seen):
                return False
            raise
        return True

    def _tries(self) -> Iterator[int]:
        """The numbers of attempts, from 1, each when its time has come."""
        deadline = time.monotonic() + COMMIT_S_MAX
        for attempt in range(self._attempts):
            if attempt and time.monotonic() > deadline:
                return
            if attempt:
                time.sleep(self._jitter.uniform(0, min(BACKOFF_MAX_S, 0.01 * 2**attempt)))
            yield attempt + 1

    def _opened(self) -> SinkContext:
        assert self._context is not None, "the committer is not open"
        return self._context


def visible_rows(
    parts: Sequence[CheckpointCommittables[C]], done: Sequence[CheckpointCommittables[C]]
) -> tuple[VisibleRows, ...]:
    """The rows of each checkpoint. `done`: what this call has committed of them."""
    new = {part.checkpoint_id: part.rows for part in done}
    return tuple(
        VisibleRows(
            CheckpointId(part.checkpoint_id),
            new.get(part.checkpoint_id, part.rows),
            already=part.checkpoint_id not in new,
        )
        for part in parts
    )


def together(results: Sequence[CommitResult]) -> CommitResult:
    """The result of turns, the last of which may have to be repeated."""
    last = results[-1]
    if len(results) == 1 or last.outcome is CommitOutcome.RETRY:
        return last
    outcomes = {one.outcome for one in results}
    return replace(
        last,
        outcome=CommitOutcome.COMMITTED if CommitOutcome.COMMITTED in outcomes else last.outcome,
        rows=sum(one.rows for one in results),
        visible=tuple(rows for one in results for rows in one.visible),
    )


def _already(
    parts: Sequence[CheckpointCommittables[C]],
    maybe_done: Sequence[CheckpointCommittables[C]],
    version: int | None,
) -> CommitResult:
    """The result of a commit that the target shows; by this call, if an attempt had no known outcome."""
    outcome = CommitOutcome.COMMITTED if maybe_done else CommitOutcome.ALREADY_COMMITTED
    rows = sum(part.rows for part in maybe_done)
    return CommitResult(outcome, rows, version, visible=visible_rows(parts, maybe_done))
