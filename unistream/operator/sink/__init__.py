"""The operators of a sink.

    SinkWriterOperator ─► [CommittableStageOperator …] ─► CommitterOperator ─► [OnCommitOperator …]
       stages rows            compacts, …                     makes visible       acts on what is visible

Committables of checkpoint n leave the writer before barrier n, are stored in the committer's snapshot n,
and are committed when the manifest of n (or of a later one) is durable. Those of the end of input carry
the id of the checkpoint that must come next. What travels between the operators: `committables`. May
import: `operator.common`. Start with `writer`.
"""

from __future__ import annotations

from unistream.operator.sink.commit_rounds import CommitRounds, Committed
from unistream.operator.sink.committables import Committables, Due
from unistream.operator.sink.committer import (
    COMMITTER_STATE,
    TARGET_STATE,
    CommitterOperator,
    CommittingOperator,
    OnCommitOperator,
    StageCommitter,
)
from unistream.operator.sink.stages import CommittableStageOperator
from unistream.operator.sink.writer import WRITER_STATE, SinkOperator, SinkWriterOperator

__all__ = [
    "COMMITTER_STATE",
    "TARGET_STATE",
    "WRITER_STATE",
    "CommitRounds",
    "CommittableStageOperator",
    "Committables",
    "Committed",
    "CommitterOperator",
    "CommittingOperator",
    "Due",
    "OnCommitOperator",
    "SinkOperator",
    "SinkWriterOperator",
    "StageCommitter",
]
