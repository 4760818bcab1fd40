"""How a task handles checkpoint barriers, on its thread: it takes the snapshot and forwards them.

A barrier goes one way; no step calls back into an earlier one:

    of a task with inputs                                of a source, or after the end of all inputs

    channel          barrier, announcement,              master
       │             cancel marker, end                     │ TriggerCheckpoint
       ▼                                                    ▼
    exchange.gates   reads one element at a time         mailbox
       │                                                    │
       ▼                                                    │
    exchange.aligned blocks channels, lets barriers         │
       │             overtake, gathers rows in flight       │
       │             (core.task.barriers decides)           │
       │ AlignedBarrier, InputsGathered, GivenUp            │
       ▼                                                    ▼
    TaskBarriers ◄──────────────────────────────────────────┘
       │ begins it, once; the end of data where the barrier says so
       ▼
    TaskSnapshots    state of the operators, in the background to the storage, then acknowledged
       │ barrier, or cancel marker
       ▼
    Outputs          to the channels of the next tasks

A timeout (`on_time`) enters at `exchange.aligned`. An abort by the master enters there and at TaskBarriers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from unistream.base.clock import Clock
from unistream.base.config import Configuration
from unistream.base.errors import ProtocolError
from unistream.core.task import BarrierSettings
from unistream.model.deployment import TaskDeployment
from unistream.model.elements import CancelCheckpointMarker, CheckpointBarrier
from unistream.model.messages import CheckpointAborted, TriggerCheckpoint
from unistream.model.snapshot_kind import SnapshotKind
from unistream.worker.exchange import (
    AlignedBarrier,
    AlignmentFigures,
    GivenUp,
    HandedOn,
    InputsGathered,
    Outputs,
)
from unistream.worker.task.snapshots import TaskSnapshots


class TaskLife(Protocol):
    """The progress of a task."""

    data_ended: bool
    """EndOfData was sent."""
    drained: bool
    """… after the end of all data, not at a suspension; now, or before the snapshot that it starts from."""

    def end_of_data(self, *, drain: bool) -> None:
        """No more rows: finishes the operators, if `drain`, and sends EndOfData."""


class TaskBarriers:
    """Barriers of one attempt."""

    def __init__(
        self,
        deployment: TaskDeployment,
        outputs: Outputs,
        snapshots: TaskSnapshots,
        clock: Clock,
        *,
        life: TaskLife,
    ) -> None:
        self._settings = BarrierSettings.of(Configuration(deployment.config))
        self._is_source = deployment.vertex.source is not None
        self._inputs_ended = self._is_source  # which has none
        self._outputs = outputs
        self._snapshots = snapshots
        self._clock = clock
        self._life = life
        self._triggers: list[TriggerCheckpoint] = []

    # --- input ------------------------------------------------------------------------------------

    def on_inputs(self, handed_on: Sequence[HandedOn]) -> None:
        """What the inputs report, in order."""
        for event in handed_on:
            match event:
                case AlignedBarrier(barrier=barrier, overtakes=overtakes, figures=figures):
                    self._take(barrier, figures, persists=overtakes)
                case InputsGathered():
                    self._snapshots.on_inputs_gathered(
                        event.checkpoint_id, event.restored, event.inputs, event.figures
                    )
                case GivenUp(checkpoint_id=checkpoint_id, reason=reason):
                    self._outputs.broadcast(CancelCheckpointMarker(checkpoint_id))
                    self._snapshots.decline(checkpoint_id, reason.value)

    def on_inputs_ended(self) -> None:
        """All inputs have ended: no more barriers arrive."""
        self._inputs_ended = True
        self._take_triggers()

    def on_trigger(self, mail: TriggerCheckpoint) -> None:
        """The master triggers sources, and tasks whose inputs have all ended."""
        self._triggers.append(mail)
        self._take_triggers()

    def on_aborted(self, mail: CheckpointAborted, *, awaited: bool) -> None:
        """The master has aborted a checkpoint. `awaited`: some of its barriers had not arrived."""
        if awaited:
            self._outputs.broadcast(CancelCheckpointMarker(mail.checkpoint_id))
        self._triggers = [t for t in self._triggers if t.checkpoint_id != mail.checkpoint_id]
        self._snapshots.on_aborted(mail)

    # --- snapshots --------------------------------------------------------------------------------

    def _take_triggers(self) -> None:
        """A trigger may arrive before the last EndOfPartition; it is then kept until that arrives."""
        if not self._inputs_ended:
            return
        triggers, self._triggers = self._triggers, []
        for trigger in triggers:
            before, at_ms, format_ = trigger.before, trigger.timestamp_ms, trigger.format
            figures = AlignmentFigures(start_delay_ms=max(0, self._clock.wall_ms() - at_ms))
            if before is not None:  # of a drain: at the same position, before the end of data
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

    def _take(self, barrier: CheckpointBarrier, figures: AlignmentFigures, *, persists: bool = False) -> None:
        if not self._snapshots.begin(barrier):
            return
        if barrier.kind.is_synchronous and not self._life.data_ended:
            if not self._is_source:
                raise ProtocolError(f"the barrier of {barrier} came before the end of data")
            self._life.end_of_data(drain=barrier.kind is SnapshotKind.TERMINATE)
        self._snapshots.take(barrier, finished=self._life.drained, figures=figures, persists=persists)
