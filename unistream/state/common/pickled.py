"""Values of states that are declared `pickled`: the one place where state leaves the open format.

Only a worker loads them, on restore only where the job allows it (`check_allowed`): reading such a value runs
the code in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from unistream.base.code_pickle import dumps, loads
from unistream.base.errors import ConfigError, UserCodeError
from unistream.state.common.migration import described


def check_allowed(name: str, *, pickled: bool, allowed: bool) -> None:
    """Raises ConfigError for stored state that must not be loaded. `name`: "" for all states of a backend."""
    if pickled and not allowed:
        raise ConfigError(
            f"state{f' {name!r}' if name else ''} was stored pickled; reading it runs the code in it. If you "
            "trust its source, set execution.state-recovery.allow-pickled-state to true"
        )


def pickler(name: str, keys: pa.Schema) -> Callable[[Any], bytes]:
    """A Python object as bytes; classes of the pipeline's own modules travel with it.

    What cannot be pickled is a UserCodeError that names the state and its key columns: the next checkpoint
    could not store the object either, so declining this one would not help.
    """

    def dump(value: Any) -> bytes:
        try:
            return dumps(value)
        except MemoryError:
            raise
        except Exception as error:  # also what a user's class raises in __reduce__
            of_key = f" of key ({described(keys)})" if keys.names else ""
            what = f"{type(value).__module__}.{type(value).__qualname__}"
            raise UserCodeError(
                f"state {name!r}{of_key} was given an object of {what}, which cannot be pickled: "
                f"{type(error).__name__}: {error}"
            ) from error

    return dump


def unpickled(stored: bytes) -> Any:
    """The value that a `pickler` stored. Runs code."""
    return loads(stored)
