"""Commits what a savepoint still lists as pending, without a job.

    decide    `pending`: which sinks, which checkpoints, in which order; refused if a committer is unknown
    commit    sink by sink as a restored committer: permit of the manifest, checkpoints ascending, retries
    report    one line for each sink; the failure of one does not stop the others

Nothing is deleted and nothing is written into the savepoint. Every commit is idempotent, so it may be run
again after a crash, and a job that starts from the savepoint later finds everything committed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from unistream.base.config import COMMITTER_RETRIES, Configuration
from unistream.base.errors import OutcomeUnknown
from unistream.base.ids import AttemptId, CheckpointId, JobId, LeaderEpoch, OperatorUid, VertexId
from unistream.base.sizes import size_text
from unistream.connector.catalogue import committer_of
from unistream.model.chain import JobCode
from unistream.model.snapshot import Manifest
from unistream.operator.sink import CommitRounds, Committed, CommittingOperator, Due, StageCommitter
from unistream.port.metrics import Uncounted
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitOutcome, Committer, SinkContext, StatefulCommitter
from unistream.savepoint.pending import Known, SinkPlan, Step, merged, pending, plan_commits
from unistream.savepoint.reading import Savepoint

_NO_MASTER: Final = LeaderEpoch(0)  # there is no leader; tables record it for information only

_log = logging.getLogger(__name__)


class Outcome(Enum):
    """How the commit of one sink has ended."""

    PENDING = "pending"
    COMMITTED = "committed"
    ALREADY_COMMITTED = "already committed"
    FAILED = "failed for a known reason"
    UNKNOWN = "unknown outcome"
    ERROR = "error"


class SinkCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one operator of a sink.

    Attributes:
        sink: Identity under which it commits.
        operator: Uid of the committer, as `savepoint inspect` lists it.
        connector: Empty: the pipeline made the committer.
        checkpoints: Ascending.
        rows: Made visible now, if the sink reports it.
        failed: Number of committables that can never be committed.
        reason: Why it did not succeed.
    """

    sink: OperatorUid
    operator: OperatorUid
    connector: str
    checkpoints: tuple[CheckpointId, ...]
    committables: int
    outcome: Outcome
    rows: int = 0
    table_version: int | None = None
    failed: int = 0
    reason: str = ""


class Finalized(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `finalize`. `advice`: further information, may be empty."""

    path: str
    job: JobId
    job_name: str
    checkpoint_id: CheckpointId
    commits: tuple[SinkCommit, ...]
    advice: str = ""

    @property
    def is_complete(self) -> bool:
        """Everything that was pending is committed."""
        done = (Outcome.COMMITTED, Outcome.ALREADY_COMMITTED)
        return all(commit.outcome in done for commit in self.commits)

    @property
    def had_nothing_to_do(self) -> bool:
        """Nothing was pending, or all of it had been committed."""
        return all(commit.outcome is Outcome.ALREADY_COMMITTED for commit in self.commits)


def finalize(
    savepoint: Savepoint, config: Configuration, code: JobCode | None = None, *, dry_run: bool = False
) -> Finalized:
    """Commits, or with `dry_run` only lists, what is pending. The job must not be running.

    Args:
        savepoint: Or a checkpoint.
        config: `sink.committer.retries`.
        code: The pipeline's, whose sinks make their committers.
        dry_run: No sink is contacted.

    Raises:
        ConfigError: a committer cannot be made; nothing was committed.
        CorruptSnapshot: the lists cannot be read.
    """
    manifest = savepoint.manifest
    operators = None if code is None else _committing_operators(code, manifest)
    known = None if operators is None else [_known(uid, one) for uid, one in operators.items()]
    plans = plan_commits(pending(savepoint.committables, manifest.restores_as), known)
    commits: list[SinkCommit] = []
    if dry_run:
        steps = (step for plan in plans for step in plan if step.due)
        commits += (_sink_commit(step, step.due, Outcome.PENDING) for step in steps)
    else:
        targets = savepoint.targets
        work = [(plan, _committers(plan, operators or {}, targets)) for plan in plans]
        for plan, committers in work:
            commits += _Finalizing(manifest, plan, config.get(COMMITTER_RETRIES)).run(committers)
    found = Finalized(
        path=savepoint.path,
        job=savepoint.job,
        job_name=savepoint.job_name,
        checkpoint_id=savepoint.checkpoint_id,
        commits=tuple(commits),
    )
    advice = (_advice(found, manifest), _advice_in_flight(savepoint))
    return msgspec.structs.replace(found, advice="; ".join(text for text in advice if text))


def _committing_operators(code: JobCode, manifest: Manifest) -> dict[OperatorUid, CommittingOperator]:
    """The operators that commit, in the order of the savepoint's job, new ones last."""
    found = {
        node.uid: node.operator
        for chain in code.chains.values()
        for node in chain.nodes
        if isinstance(node.operator, CommittingOperator)
    }
    order = [uid for vertex in manifest.vertices for uid in vertex.operators if uid in found]
    return {uid: found[uid] for uid in dict.fromkeys((*order, *found))}


def _known(uid: OperatorUid, operator: CommittingOperator) -> Known:
    return Known(uid=uid, sink_uid=operator.sink_uid or uid, belongs_to=operator.belongs_to or uid)


def _committers(
    plan: SinkPlan,
    operators: Mapping[OperatorUid, CommittingOperator],
    targets: Mapping[OperatorUid, Sequence[bytes]],
) -> dict[OperatorUid, Committer]:
    """All of them before anything is committed. Raises ConfigError, CorruptSnapshot."""
    made: dict[OperatorUid, Committer] = {}
    for step in plan:
        if step.connector:
            payloads = [payload for one in step.due for payload in one.payloads]
            committer = committer_of(step.connector, payloads)
        else:
            committer = operators[step.uid].create()
        if isinstance(committer, StatefulCommitter):
            committer.restore_state(targets.get(step.uid, ()))
        made[step.uid] = committer
    return made


@dataclass(frozen=True, slots=True)
class _Finalizing:
    """The commits of one sink that are to be made."""

    manifest: Manifest
    plan: SinkPlan
    retries: int

    def run(self, committers: Mapping[OperatorUid, Committer]) -> list[SinkCommit]:
        """Step by step; skips those after one that failed."""
        done: list[SinkCommit] = []
        passed: list[Due] = []
        for step in self.plan:
            due = merged(step.due, passed)
            if not due:
                continue
            try:
                found, passed = self._commit(step, committers[step.uid], due)
            except Exception as error:  # of whatever system; reported, and the other sinks are tried
                _log.warning("event=finalize_failed sink=%s", step.sink_uid, exc_info=error)
                outcome = Outcome.UNKNOWN if isinstance(error, OutcomeUnknown) else Outcome.ERROR
                return [*done, _sink_commit(step, due, outcome, str(error) or type(error).__name__)]
            done.append(_summed(step, due, found))
        return done

    def _commit(
        self, step: Step, committer: Committer, due: Sequence[Due]
    ) -> tuple[list[Committed], list[Due]]:
        """The results, and the input of the next step."""
        rounds = CommitRounds(committer, step.sink_uid, self.retries)
        lineage, checkpoint_id = self.manifest.lineage, self.manifest.restores_as
        with closing(rounds):
            rounds.open(self._context(step.sink_uid))
            permit = CommitPermit(
                lineage=lineage,
                checkpoint_id=checkpoint_id,
                epoch=_NO_MASTER,
                positions=self.manifest.positions.get(step.uid, ()),
            )
            found = rounds.run(permit, due)
        if isinstance(committer, StageCommitter):
            made = [(one.checkpoint_id, tuple(committer.made.get(one.checkpoint_id, ()))) for one in due]
        else:
            failed = {payload for committed in found for payload in committed.failed}
            made = [(one.checkpoint_id, tuple(p for p in one.payloads if p not in failed)) for one in due]
        return found, [Due(checkpoint_id, payloads) for checkpoint_id, payloads in made if payloads]

    def _context(self, sink_uid: OperatorUid) -> SinkContext:
        job = self.manifest.job
        return SinkContext(
            job=job,
            lineage=self.manifest.lineage,
            sink_uid=sink_uid,
            attempt=AttemptId(job, VertexId("0" * 32), 0, 0),
            index=0,
            parallelism=1,
            restored=self.manifest.restores_as,
            metrics=Uncounted(),
            finalizing=True,
        )


def _summed(step: Step, due: Sequence[Due], found: Sequence[Committed]) -> SinkCommit:
    failed = sum(len(committed.failed) for committed in found)
    outcomes = {committed.result.outcome for committed in found}
    if failed or CommitOutcome.FAILED in outcomes:
        outcome = Outcome.FAILED
    elif outcomes == {CommitOutcome.ALREADY_COMMITTED}:
        outcome = Outcome.ALREADY_COMMITTED
    else:
        outcome = Outcome.COMMITTED
    reasons = dict.fromkeys(committed.reason for committed in found if committed.reason)
    return msgspec.structs.replace(
        _sink_commit(step, due, outcome, "; ".join(reasons)),
        rows=sum(committed.result.rows for committed in found),
        table_version=found[-1].result.table_version,
        failed=failed,
    )


def _sink_commit(step: Step, due: Sequence[Due], outcome: Outcome, reason: str = "") -> SinkCommit:
    return SinkCommit(
        sink=step.sink_uid,
        operator=step.uid,
        connector=step.connector,
        checkpoints=tuple(one.checkpoint_id for one in due),
        committables=sum(len(one.payloads) for one in due),
        outcome=outcome,
        reason=reason,
    )


def _advice(found: Finalized, manifest: Manifest) -> str:
    """A sentence about the other savepoint of a drain."""
    if manifest.resumes_after is None or not found.commits:
        return ""
    if found.had_nothing_to_do:
        return f"the drain that took this savepoint (checkpoint {manifest.resumes_after}) has committed it"
    return (
        f"the terminal savepoint of the same drain (checkpoint {manifest.resumes_after}) lists these commits "
        "and those of the drain itself"
    )


def _advice_in_flight(savepoint: Savepoint) -> str:
    """A sentence about an unaligned checkpoint: its sources have passed rows that no sink has received."""
    size = sum(rows.size for rows in savepoint.in_flight)
    if not size:
        return ""
    return (
        f"{size_text(size)} of rows were in flight when it was taken and are not in any output; only a "
        "job that starts from it processes them"
    )
