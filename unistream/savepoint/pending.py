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
from unistream.operator.committables import Committables, Due


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
class Step:
    """One operator's part. `connector` empty: the pipeline's operator makes the committer."""

    uid: OperatorUid
    connector: str = ""
    due: tuple[Due, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPlan:
    """One sink. What a step has committed is given to the next, together with what that lists itself."""

    sink_uid: OperatorUid
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


def plan_commits(
    found: Sequence[Pending], pipeline: Mapping[OperatorUid, OperatorUid] | None = None
) -> list[SinkPlan]:
    """Sinks with something pending, in the order of the job.

    Args:
        found: As `pending` gives it.
        pipeline: Committing operators of the user's pipeline -> their sink's uid, in the order of the
            pipeline; they are preferred. None: none was given.

    Raises:
        ConfigError: nobody can tell how to commit some of it; names the operators.
    """
    known = pipeline or {}
    unknown = [one.uid for one in found if one.uid not in known and not (one.connector and one.sink_uid)]
    if unknown:
        names = ", ".join(repr(str(uid)) for uid in unknown)
        if pipeline is None:
            raise ConfigError(
                f"how to commit what {names} lists is not in the savepoint: the sink is a user's own, or a "
                "former version wrote it; name the pipeline that has it (--pipeline MODULE:FUNCTION)"
            )
        there = ", ".join(repr(str(uid)) for uid in known) or "none"
        raise ConfigError(
            f"the pipeline has no committer with uid {names}; it has {there}. Name the pipeline that wrote "
            "the savepoint"
        )
    sinks: dict[OperatorUid, dict[OperatorUid, Step]] = {}
    for one in found:
        sink_uid = known.get(one.uid) or one.sink_uid
        assert sink_uid is not None, "looked at above"
        beside = [uid for uid, sink in known.items() if sink == sink_uid] if one.uid in known else [one.uid]
        steps = sinks.setdefault(sink_uid, {uid: Step(uid=uid) for uid in beside})
        steps[one.uid] = Step(uid=one.uid, connector="" if one.uid in known else one.connector, due=one.due)
    return [SinkPlan(sink_uid=uid, steps=tuple(steps.values())) for uid, steps in sinks.items()]


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
