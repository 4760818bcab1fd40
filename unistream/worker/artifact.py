"""User code on its way to a worker: the only place that packs and opens it.

An artifact is the cloudpickle of a `JobCode`, named by its SHA-256. The client packs it, the master
stores and forwards bytes, and only the worker process of that job opens it, after the content has been
compared with the name that the deployment carries. `verify` is where a signature of the cluster
is checked before anything is opened.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import ModuleType

import cloudpickle

from unistream.base.errors import ConfigError, ProtocolError, UserCodeError
from unistream.base.limits import ARTIFACT_BYTES_MAX
from unistream.model.chain import JobCode


def pack(code: JobCode, *, by_value: Iterable[ModuleType] = ()) -> bytes:
    """The bytes of an artifact.

    Args:
        code: The chains of the job; not yet set up.
        by_value: Modules that the workers cannot import (a script's helpers): their functions and
            classes travel inside. What is defined in ``__main__`` always does.

    Raises:
        ConfigError: something in a pipeline cannot be sent (an open file, a lock, a client …), or the
            artifact is too large.
    """
    with ExitStack() as registered:
        for module in by_value:
            if module.__name__ != "__main__":
                cloudpickle.register_pickle_by_value(module)
                registered.callback(cloudpickle.unregister_pickle_by_value, module)
        try:
            content: bytes = cloudpickle.dumps(code)
        except Exception as error:
            raise ConfigError(
                f"the pipeline cannot be sent to workers: {type(error).__name__}: {error}; "
                "create such objects inside the function, or in open()"
            ) from error
    if len(content) > ARTIFACT_BYTES_MAX:
        raise ConfigError(f"the pipeline's code has {len(content)} B, limit {ARTIFACT_BYTES_MAX} B")
    return content


def sha256(content: bytes) -> str:
    """The name of an artifact, in hex."""
    return hashlib.sha256(content).hexdigest()


def unsigned(content: bytes) -> None:
    """`verify` of a cluster without a secret: the content address is all there is."""


def load(content: bytes, expected_sha256: str, *, verify: Callable[[bytes], None] = unsigned) -> JobCode:
    """New, unshared objects of every operator of the job.

    Args:
        content: As it came from the master.
        expected_sha256: As the deployment named it.
        verify: Raises ProtocolError unless the content comes from this cluster's clients.

    Raises:
        ProtocolError: the content is not what the deployment named; it was not opened.
        UserCodeError: it is, but cannot be opened here (a module that is missing on the worker).
    """
    if len(content) > ARTIFACT_BYTES_MAX or sha256(content) != expected_sha256:
        raise ProtocolError(f"the artifact is not {expected_sha256}; it was not opened")
    verify(content)
    try:
        code = cloudpickle.loads(content)
    except Exception as error:
        raise UserCodeError(
            f"the pipeline's code cannot be opened on Python {sys.version.split()[0]}: "
            f"{type(error).__name__}: {error}; is everything that it imports installed on the workers?"
        ) from error
    if not isinstance(code, JobCode):
        raise ProtocolError(f"the artifact {expected_sha256} holds no job")
    return code
