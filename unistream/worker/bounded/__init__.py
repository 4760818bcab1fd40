"""A subtask of a bounded job without a cluster: its input is given to it, its output is taken from it.

An engine that places tasks and moves their data by itself (Spark) runs each subtask as one call of
`PlaceAttempt.run`: pieces of other subtasks' output go in, pieces for other subtasks come out, and the
operators live as in any task (`worker.task`): open, rows, end of input, finish, close. A subtask waits while
nobody takes what it has made, and there are no checkpoints. May import: `worker.task`, `worker.exchange`.
Start with `job`.
"""

from __future__ import annotations

from unistream.worker.bounded.job import STAGED, BoundedRun, PlaceAttempt, may_help
from unistream.worker.bounded.pieces import FAILED, Piece, stored_rows
from unistream.worker.bounded.subtask import SubtaskFailed
