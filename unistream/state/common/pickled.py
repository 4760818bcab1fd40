"""Values of states that are declared `pickled`: the one place where state leaves the open format.

Only a worker comes here, for a state whose descriptor says so, and on restore only where the job allows it
(`execution.state-recovery.allow-pickled-state`): to read such a value is to run code that lies in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle
import pyarrow as pa

from unistream.base.errors import UserCodeError


def pickler(name: str, keys: pa.Schema) -> Callable[[Any], bytes]:
    """A Python object as bytes; classes of the pipeline's own modules travel with it.

    It raises UserCodeError for what cannot be pickled, with the names of the state and of its key's columns,
    where they are known: the same object could not be stored at the next checkpoint either, so that to
    decline this one helps nobody.
    """

    def dump(value: Any) -> bytes:
        try:
            stored: bytes = cloudpickle.dumps(value)
        except MemoryError:
            raise
        except Exception as error:  # also what a class of the user's raises in __reduce__
            columns = ", ".join(f"{field.name} {field.type}" for field in keys)
            of_key = f" of key ({columns})" if columns else ""
            what = f"{type(value).__module__}.{type(value).__qualname__}"
            raise UserCodeError(
                f"state {name!r}{of_key} was given an object of {what}, which cannot be pickled: "
                f"{type(error).__name__}: {error}"
            ) from error
        return stored

    return dump


def unpickled(stored: bytes) -> Any:
    """What a `dumper` was given. Runs code: see the head of this module."""
    return cloudpickle.loads(stored)
