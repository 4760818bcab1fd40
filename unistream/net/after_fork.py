"""Whether gRPC can be used here: not in a process that was forked from one that has used it, where the first
call waits for ever. Its threads are not in the child, and their locks are as they were."""

from __future__ import annotations

import os

from unistream.base.errors import ConfigError


class _Grpc:
    """The process that has used gRPC, of this one and those that it was forked from; None: none has."""

    process: int | None = None


_grpc = _Grpc()


def use_grpc() -> None:
    """Notes that this process uses gRPC.

    Raises:
        ConfigError: it was forked from a process that had.
    """
    if _grpc.process not in (None, os.getpid()):
        raise ConfigError(
            f"no cluster can run in this process: it was forked from process {_grpc.process}, which has had "
            "one, and gRPC waits for ever in such a child. Start it by multiprocessing.get_context('spawn'), "
            "or submit the job to a session cluster: target='remote'"
        )
    _grpc.process = os.getpid()
