"""Harnesses: one operator, source, sink or function driven step by step by a test.

`functions` drives a user's function, `connectors` a source or sink of a user's own, `operators` an operator;
`memory_files` is their storage. Start with `operators`.
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
