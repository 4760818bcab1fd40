"""Submitting and steering jobs: on a cluster in this process, or on another one over HTTP.

Names are loaded when they are first used: a command that only asks for a list needs no Spark and no server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from unistream.client.embedded import EmbeddedCluster, EmbeddedJobClient
    from unistream.client.job_client import JobClient, JobResult
    from unistream.client.rest_client import RestClient, RestJobClient
    from unistream.client.submission import connect, execute
    from unistream.master.job_info import JobInfo
    from unistream.master.job_setup import SubmitRequest

__all__ = [
    "EmbeddedCluster",
    "EmbeddedJobClient",
    "JobClient",
    "JobInfo",
    "JobResult",
    "RestClient",
    "RestJobClient",
    "SubmitRequest",
    "connect",
    "execute",
]

_MODULES: Final = {
    "EmbeddedCluster": "unistream.client.embedded",
    "EmbeddedJobClient": "unistream.client.embedded",
    "JobClient": "unistream.client.job_client",
    "JobInfo": "unistream.master.job_info",
    "JobResult": "unistream.client.job_client",
    "RestClient": "unistream.client.rest_client",
    "RestJobClient": "unistream.client.rest_client",
    "SubmitRequest": "unistream.master.job_setup",
    "connect": "unistream.client.submission",
    "execute": "unistream.client.submission",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)
