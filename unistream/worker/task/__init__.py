"""One attempt of one subtask: a chain of operators that is stepped by one thread.

`task` (`StreamTask.step`) takes a mailbox action or an input element; `chain` calls the operators;
`barriers` and `snapshots` store state and acknowledge it; `run` is an attempt from deployment to its
terminal state, on its thread. Created by `builder`.
May import: `worker.exchange`, `worker.code`, `core.task`. Start with `task`.
"""

from __future__ import annotations

from unistream.worker.task.builder import TaskNetwork, assemble, build_task, check_matches
from unistream.worker.task.environment import Doing, TaskEnvironment
from unistream.worker.task.failures import task_failure
from unistream.worker.task.mailbox import BackgroundDone, Mail, Mailbox
from unistream.worker.task.run import BuildTask, TaskEnded, TaskRun, TaskThread
from unistream.worker.task.source_operator import SPLITS_STATE, SourceOperator
from unistream.worker.task.state import Done, StepResult, TaskState, Waiting
from unistream.worker.task.task import StreamTask
from unistream.worker.task.user_log import LogTail, UserLog
