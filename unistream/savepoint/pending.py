"""The pending commits of a savepoint, and their order. Decides; does nothing.

    list of each committer ─► PendingCommits ─┐
    operators of the pipeline ────────────────┴─► SinkPlan: the committer first, then the stages after it

A committer is made by the pipeline, or from the committables if the snapshot names their connector. If
neither is possible for one of them, nothing is committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, OperatorUid
from unistream.operator.sink import Committables, Due


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCommits:
    """The pending commits of one operator.

    Attributes:
        sink_uid: Identity of its commits; None: not stored by an earlier version.
        connector: By which it is committed; empty: only the pipeline can make the committer.
        due: By checkpoint, ascending, none empty.
    """

    uid: OperatorUid
    sink_uid: OperatorUid | None
    connector: str
    due: tuple[Due, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A committing operator of the user's pipeline.

    Attributes:
        sink_uid: Identity of its commits.
        belongs_to: Its sink, whose operators act one after the other.
    """

    uid: OperatorUid
    sink_uid: OperatorUid
    belongs_to: OperatorUid


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operator's part. `connector` empty: the pipeline's operator makes the committer."""

    uid: OperatorUid
    sink_uid: OperatorUid
    connector: str = ""
    due: tuple[Due, ...] = ()


SinkPlan: TypeAlias = tuple[Step, ...]
"""One sink. What a step has committed is passed to the next, together with what that one lists itself."""


def pending(
    stored: Sequence[tuple[OperatorUid, Sequence[bytes]]], up_to: CheckpointId
) -> list[PendingCommits]:
    """The pending commits in the lists of all committers, as a restored job takes them; without operators
    that have none.

    Args:
        stored: Elements of each committer's list.
        up_to: The checkpoint id that a restored job continues from (`Manifest.restores_as`).

    Raises:
        CorruptSnapshot: a list cannot be read.
        ProtocolError: committables of a checkpoint are missing.
    """
    found = []
    for uid, items in stored:
        committables = Committables(uid)
        committables.restore(items, up_to)
        sink_uid, connector = committables.restored_from
        due = tuple(one for one in committables.due(up_to) if one.payloads)
        if due:
            identity = OperatorUid(sink_uid) if sink_uid else None
            found.append(PendingCommits(uid=uid, sink_uid=identity, connector=connector, due=due))
    return found


def plan_commits(found: Sequence[PendingCommits], pipeline: Sequence[Known] | None = None) -> list[SinkPlan]:
    """Sinks with something pending, in the order of the job.

    Args:
        found: From `pending`.
        pipeline: In order; preferred to the savepoint's connectors. None: none was given.

    Raises:
        ConfigError: some committer cannot be made; names the operators.
    """
    known = {one.uid: one for one in pipeline or ()}
    _check(found, known, is_given=pipeline is not None)
    stored = {one.uid: one for one in found}
    sinks: dict[OperatorUid, SinkPlan] = {}
    for one in found:
        if one.uid not in known:
            assert one.sink_uid is not None, "_check refuses it"
            sinks[one.uid] = (Step(uid=one.uid, sink_uid=one.sink_uid, connector=one.connector, due=one.due),)
            continue
        sink = known[one.uid].belongs_to
        sinks[sink] = tuple(
            Step(uid=k.uid, sink_uid=k.sink_uid, due=stored[k.uid].due if k.uid in stored else ())
            for k in known.values()
            if k.belongs_to == sink
        )
    return list(sinks.values())


def _check(found: Sequence[PendingCommits], known: Mapping[OperatorUid, Known], *, is_given: bool) -> None:
    unknown = [one.uid for one in found if one.uid not in known and not (one.connector and one.sink_uid)]
    if not unknown:
        return
    names = ", ".join(repr(str(uid)) for uid in unknown)
    if not is_given:
        raise ConfigError(
            f"the savepoint does not say how to commit the output of {names}: the sink is a user's own, or "
            "an earlier version wrote the savepoint; name its pipeline (--pipeline MODULE:FUNCTION)"
        )
    there = ", ".join(repr(str(uid)) for uid in known) or "none"
    raise ConfigError(
        f"the pipeline has no committer with uid {names}; it has {there}. Name the pipeline that wrote "
        "the savepoint"
    )


def merged(due: Sequence[Due], more: Sequence[Due]) -> list[Due]:
    """The commits of both lists by checkpoint, ascending, each committable once.

    >>> both = merged([Due(2, (b"b",))], [Due(1, (b"a",)), Due(2, (b"b", b"c"))])
    >>> [(one.checkpoint_id, one.payloads) for one in both]
    [(1, (b'a',)), (2, (b'b', b'c'))]
    """
    both = sorted((*due, *more), key=lambda one: one.checkpoint_id)
    return [
        Due(checkpoint_id, tuple(dict.fromkeys(payload for one in same for payload in one.payloads)))
        for checkpoint_id, same in groupby(both, key=lambda one: one.checkpoint_id)
    ]
