"""What a task does about checkpoint barriers: those that come, and those that it sends.

`unistream.core.task.barriers` decides; this performs it, on the task's thread.
"""

from __future__ import annotations

from typing import Final, Protocol

from unistream.base.clock import Clock
from unistream.base.config import Configuration
from unistream.base.errors import ProtocolError
from unistream.core.task import (
    Abort,
    Action,
    BarrierSettings,
    OpenInFlight,
    Prioritize,
    StartPersisting,
    StopPersisting,
    Trigger,
)
from unistream.model.elements import CancelCheckpointMarker, CheckpointBarrier, SnapshotKind
from unistream.model.messages import CheckpointAborted, TaskDeployment, TriggerCheckpoint
from unistream.worker.exchange import AlignmentFigures, Announcement, InputGates, Outputs
from unistream.worker.task.snapshots import TaskSnapshots

_UNKNOWN: Final = AlignmentFigures()  # until all barriers are there


class TaskLife(Protocol):
    """How far a task has come."""

    data_ended: bool
    """EndOfData was sent."""
    drained: bool
    """… and it was the end, not a suspension."""

    def end_of_data(self, *, drain: bool) -> None:
        """No more rows: finishes the operators (or not), and says so."""


class TaskBarriers:
    """Barriers of one attempt."""

    def __init__(
        self,
        deployment: TaskDeployment,
        inputs: InputGates,
        outputs: Outputs,
        snapshots: TaskSnapshots,
        clock: Clock,
        *,
        life: TaskLife,
    ) -> None:
        self._settings = BarrierSettings.of(Configuration(deployment.config))
        self._index = deployment.attempt.index
        self._is_source = deployment.vertex.source is not None
        self._inputs = inputs
        self._outputs = outputs
        self._snapshots = snapshots
        self._clock = clock
        self._life = life
        self._triggers: list[TriggerCheckpoint] = []

    # --- what comes -------------------------------------------------------------------------------

    def on_element(
        self, channel: int, element: CheckpointBarrier | CancelCheckpointMarker | Announcement
    ) -> None:
        """Read from `channel`."""
        if isinstance(element, Announcement):
            self._perform(self._inputs.on_announcement(channel, element))
        else:
            self._perform(self._inputs.on_barrier(channel, element))

    def on_end_of_partition(self, channel: int) -> None:
        """Nothing follows on `channel`."""
        self._perform(self._inputs.on_end_of_partition(channel))
        self._take_triggers()

    def on_trigger(self, mail: TriggerCheckpoint) -> None:
        """Sources, and tasks whose inputs have all ended, are triggered by the master."""
        self._triggers.append(mail)
        self._take_triggers()

    def on_aborted(self, mail: CheckpointAborted) -> None:
        """The master has given it up."""
        given_up = [] if self._is_source else self._inputs.give_up(mail.checkpoint_id)
        if given_up:
            self._outputs.broadcast(CancelCheckpointMarker(mail.checkpoint_id))
        if any(isinstance(action, StopPersisting) for action in given_up):
            self._inputs.stop_persisting(self._index)
        self._triggers = [t for t in self._triggers if t.checkpoint_id != mail.checkpoint_id]
        self._snapshots.on_aborted(mail)

    def on_time(self) -> bool:
        """Alignments and barriers in outputs may have timed out. True: something was done."""
        actions = self._inputs.on_time()
        self._perform(actions)
        return self._snapshots.check_outputs() or bool(actions)

    @property
    def deadline_monotonic_ms(self) -> int | None:
        """When `on_time` has something to do."""
        deadlines = (self._inputs.deadline_monotonic_ms, self._snapshots.deadline_monotonic_ms)
        return min((d for d in deadlines if d is not None), default=None)

    # --- what is done -----------------------------------------------------------------------------

    def _take_triggers(self) -> None:
        """A trigger may overtake the last EndOfPartition, which is then waited for."""
        if not self._is_source and not self._inputs.all_ended:
            return
        triggers, self._triggers = self._triggers, []
        for trigger in triggers:
            before, at_ms, format_ = trigger.before, trigger.timestamp_ms, trigger.format
            figures = AlignmentFigures(start_delay_ms=max(0, self._clock.wall_ms() - at_ms))
            if before is not None:  # of a drain: at the same position, ahead of the end of data
                kind = SnapshotKind.SAVEPOINT
                half = CheckpointBarrier(before.checkpoint_id, at_ms, kind, before.directory, format=format_)
                self._take(half, figures)
            barrier = CheckpointBarrier(
                trigger.checkpoint_id,
                at_ms,
                trigger.kind,
                trigger.directory,
                format=format_,
                full=trigger.full,
            )
            self._take(barrier if trigger.aligned else self._settings.stamped(barrier), figures)

    def _perform(self, actions: list[Action]) -> None:
        """What the handler of barriers has decided, in its order."""
        persists = any(isinstance(action, StartPersisting) for action in actions)
        given_up = {action.checkpoint_id for action in actions if isinstance(action, Abort)}
        for action in actions:
            match action:
                case OpenInFlight():
                    """What is in flight is kept by checkpoint, from its trigger on."""
                case StartPersisting():
                    self._inputs.start_persisting(self._index)
                case Trigger(barrier=barrier):
                    figures = self._inputs.meter.stop(barrier.checkpoint_id) if not persists else _UNKNOWN
                    self._take(barrier.resumed(), figures, persists=persists)
                case StopPersisting(checkpoint_id=checkpoint_id):
                    restored, inputs = self._inputs.stop_persisting(self._index)
                    figures = self._inputs.meter.stop(checkpoint_id)
                    if checkpoint_id not in given_up:  # else they are not all
                        self._snapshots.on_inputs_gathered(checkpoint_id, restored, inputs, figures)
                case Prioritize(channel=channel):
                    self._inputs.prioritize(channel)
                case Abort(checkpoint_id=checkpoint_id, reason=reason):
                    self._outputs.broadcast(CancelCheckpointMarker(checkpoint_id))
                    self._snapshots.decline(checkpoint_id, reason.value)

    def _take(self, barrier: CheckpointBarrier, figures: AlignmentFigures, *, persists: bool = False) -> None:
        if not self._snapshots.begin(barrier):
            return
        if barrier.kind.is_synchronous and not self._life.data_ended:
            if not self._is_source:
                raise ProtocolError(f"the barrier of {barrier} came before the end of data")
            self._life.end_of_data(drain=barrier.kind is SnapshotKind.TERMINATE)
        self._snapshots.take(barrier, finished=self._life.drained, figures=figures, persists=persists)
