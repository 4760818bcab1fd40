"""The steps of a sink before its committer: committables of one checkpoint in, committables out.

Everything of checkpoint n has arrived when barrier n has, so the step is done there, before the barrier goes
on; what it makes belongs to n as well.
"""

from __future__ import annotations

from unistream.base.ids import CheckpointId, OperatorUid
from unistream.model.elements import Batch
from unistream.model.snapshot import OperatorState
from unistream.operator.sink.committables import Committables
from unistream.operator.sink.writer import SinkOperator
from unistream.port.sink import CommittableFunction, CommittableStage, Sink


class CommittableStageOperator(SinkOperator):
    """One subtask of a stage of `WithPreCommitStages`. It holds nothing across barriers."""

    _function: CommittableFunction | None = None

    def __init__(self, sink: Sink, stage: CommittableStage, sink_uid: OperatorUid | None = None) -> None:
        super().__init__(sink, sink_uid)
        self._stage = stage
        self._committables = Committables(f"{sink.name} {stage.name}")

    def initialize_state(self, state: OperatorState) -> None:
        self._function = self._stage.create()
        self._function.open(self._sink_context(state))

    def process_batch(self, batch: Batch, input_index: int) -> None:
        self._committables.add(batch.records)

    def end_input(self, input_index: int) -> None:
        self._pass_on(self._committables.newest)

    def prepare_snapshot_pre_barrier(self, checkpoint_id: CheckpointId) -> None:
        self._pass_on(checkpoint_id)

    def close(self) -> None:
        if self._function is not None:
            self._function.close()

    def _pass_on(self, up_to: int) -> None:
        assert self._function is not None, "initialize_state comes first"
        due = self._committables.due(up_to)
        for one in due:
            made = self._function.process(one.checkpoint_id, one.payloads) if one.payloads else ()
            self._announce(one.checkpoint_id, list(made))
        self._committables.remove(one.checkpoint_id for one in due)
