"""Values of states that are declared `pickled`: the one place where state leaves the open format.

Only a worker comes here, for a state whose descriptor says so, and on restore only where the job allows it
(`execution.state-recovery.allow-pickled-state`): to read such a value is to run code that lies in it.
"""

from __future__ import annotations

from typing import Any

import cloudpickle


def dump(value: Any) -> bytes:
    """A Python object as bytes; classes of the pipeline's own modules travel with it."""
    stored: bytes = cloudpickle.dumps(value)
    return stored


def load(stored: bytes) -> Any:
    """What `dump` was given. Runs code: see the head of this module."""
    return cloudpickle.loads(stored)
