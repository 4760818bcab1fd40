"""What a savepoint still lists as pending, and in which order it is to be committed. Decides; does nothing.

    list of each committer ─► Pending ─┐
    operators of the pipeline ─────────┴─► SinkPlan: committer first, then what acts on what it committed

A committer can be made by the pipeline, or from the committables where the snapshot names their connector.
Where neither is possible nothing is decided: half of a savepoint is never committed for want of a name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, OperatorUid
from unistream.operator.sink import Committables, Due


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """What one operator lists.

    Attributes:
        sink_uid: Identity of its commits; None: a former version wrote it, and did not say.
        connector: By which it is committed; empty: only the pipeline can tell.
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
        belongs_to: Whose operators act one after the other.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPlan:
    """One sink. What a step has committed is given to the next, together with what that lists itself."""

    steps: tuple[Step, ...]


def pending(stored: Sequence[tuple[OperatorUid, Sequence[bytes]]], up_to: CheckpointId) -> list[Pending]:
    """Of the lists of all committers, as a restored job would take them; operators without any are left out.

    Args:
        stored: Elements of each committer's list.
        up_to: The id that a job which starts from the savepoint has behind it (`Manifest.restores_as`).

    Raises:
        CorruptSnapshot: a list cannot be read.
        ProtocolError: a checkpoint's committables are not all there.
    """
    found = []
    for uid, items in stored:
        committables = Committables(uid)
        committables.restore(items)
        sink_uid, connector = committables.restored_from
        due = tuple(one for one in committables.due(up_to) if one.payloads)
        if due:
            identity = OperatorUid(sink_uid) if sink_uid else None
            found.append(Pending(uid=uid, sink_uid=identity, connector=connector, due=due))
    return found


def plan_commits(found: Sequence[Pending], pipeline: Sequence[Known] | None = None) -> list[SinkPlan]:
    """Sinks with something pending, in the order of the job.

    Args:
        found: As `pending` gives it.
        pipeline: In order; preferred to what the savepoint says. None: none was given.

    Raises:
        ConfigError: nobody can tell how to commit some of it; names the operators.
    """
    known = {one.uid: one for one in pipeline or ()}
    _check(found, known, is_given=pipeline is not None)
    stored = {one.uid: one for one in found}
    sinks: dict[OperatorUid, SinkPlan] = {}
    for one in found:
        if one.uid not in known:
            assert one.sink_uid is not None, "looked at above"
            alone = Step(uid=one.uid, sink_uid=one.sink_uid, connector=one.connector, due=one.due)
            sinks[one.uid] = SinkPlan(steps=(alone,))
            continue
        sink = known[one.uid].belongs_to
        beside = (other for other in known.values() if other.belongs_to == sink)
        sinks[sink] = SinkPlan(
            steps=tuple(
                Step(
                    uid=other.uid,
                    sink_uid=other.sink_uid,
                    due=stored[other.uid].due if other.uid in stored else (),
                )
                for other in beside
            )
        )
    return list(sinks.values())


def _check(found: Sequence[Pending], known: Mapping[OperatorUid, Known], *, is_given: bool) -> None:
    unknown = [one.uid for one in found if one.uid not in known and not (one.connector and one.sink_uid)]
    if not unknown:
        return
    names = ", ".join(repr(str(uid)) for uid in unknown)
    if not is_given:
        raise ConfigError(
            f"how to commit what {names} lists is not in the savepoint: the sink is a user's own, or a "
            "former version wrote it; name the pipeline that has it (--pipeline MODULE:FUNCTION)"
        )
    there = ", ".join(repr(str(uid)) for uid in known) or "none"
    raise ConfigError(
        f"the pipeline has no committer with uid {names}; it has {there}. Name the pipeline that wrote "
        "the savepoint"
    )


def merged(due: Sequence[Due], more: Sequence[Due]) -> list[Due]:
    """Both by checkpoint, ascending, each committable once.

    >>> merged([Due(2, (b"b",))], [Due(1, (b"a",)), Due(2, (b"b", b"c"))])
    [Due(checkpoint_id=1, payloads=(b'a',)), Due(checkpoint_id=2, payloads=(b'b', b'c'))]
    """
    both = sorted((*due, *more), key=lambda one: one.checkpoint_id)
    return [
        Due(checkpoint_id, tuple(dict.fromkeys(payload for one in same for payload in one.payloads)))
        for checkpoint_id, same in groupby(both, key=lambda one: one.checkpoint_id)
    ]
