"""Harnesses: one operator, one task or one worker driven step by step by a test.

`functions` drives a user's function, `connectors` a source or sink of a user's own, `operators` an operator,
`source_driver` a reader, `task` all tasks of a job; `memory_files` and `services` are their storage and
environment. Start with `operators`.
"""

from __future__ import annotations

from unistream.testing.harness.connectors import PollingSourceHarness, SimpleSinkHarness
from unistream.testing.harness.functions import (
    BroadcastProcessFunctionHarness,
    KeyedBatchFunctionHarness,
    KeyedProcessFunctionHarness,
    ProcessFunctionHarness,
)
from unistream.testing.harness.memory_files import MemoryFiles
from unistream.testing.harness.operators import OperatorHarness, restore_state
from unistream.testing.harness.task import Snapshot, TaskJob
