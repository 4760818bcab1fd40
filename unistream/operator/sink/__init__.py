"""The operators of a sink.

    SinkWriterOperator ─► [CommittableStageOperator …] ─► CommitterOperator ─► [OnCommitOperator …]
       stages rows            compacts, …                     makes visible       uses what is visible

The writer emits committables of checkpoint n before barrier n; they are stored in the committer's snapshot n,
and committed when the manifest of n (or of a later one) is durable. Those at the end of input have the id of
the next checkpoint. `committables` defines the rows between the operators. May import: `operator.common`.
Start with `writer`.
"""

from __future__ import annotations

from unistream.operator.sink.checked_rows import CheckedRows, RowRefused
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
from unistream.operator.sink.group import GroupCommitterOperator
from unistream.operator.sink.writer import (
    WRITER_STATE,
    CommittableStageOperator,
    SinkOperator,
    SinkWriterOperator,
)
