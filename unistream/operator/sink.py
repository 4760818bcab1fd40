"""The operators of a sink.

    SinkWriterOperator ─► [CommittableStageOperator …] ─► CommitterOperator ─► [OnCommitOperator …]
       stages rows            compacts, …                     makes visible       acts on what is visible

Committables of checkpoint n leave the writer before barrier n, lie in the committer's snapshot n, and are
committed when the manifest of n (or of a later one) is durable. Those of the end of input carry the id of
the checkpoint that must come next. What travels between the operators: `committables`.
"""

from __future__ import annotations

from unistream.operator.committables import COMMITTABLES
from unistream.operator.sink_committer import (
    COMMITTER_STATE,
    CommitterOperator,
    CommittingOperator,
    OnCommitOperator,
    StageCommitter,
)
from unistream.operator.sink_stages import CommittableStageOperator
from unistream.operator.sink_writer import WRITER_STATE, SinkOperator, SinkWriterOperator

__all__ = [
    "COMMITTABLES",
    "COMMITTER_STATE",
    "WRITER_STATE",
    "CommittableStageOperator",
    "CommitterOperator",
    "CommittingOperator",
    "OnCommitOperator",
    "SinkOperator",
    "SinkWriterOperator",
    "StageCommitter",
]
