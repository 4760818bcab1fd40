"""Jobs that a remote cluster keeps beyond their end, for its clients (`unistream.master.cluster`)."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from unistream.base.errors import NotFound
from unistream.base.ids import JobId
from unistream.client.remote.answers import decode, field
from unistream.client.remote.policy import CallKind
from unistream.client.remote.rest_client import RestClient


class _KeptJobId(msgspec.Struct, frozen=True):
    job: str


class KeptJobsClient:
    """Every call may be repeated: it changes nothing more. Raises as `RestClient`."""

    def __init__(self, cluster: RestClient) -> None:
        self._cluster = cluster

    def keep(self, name: str, job: JobId, *, for_restart: bool = False) -> None:
        """`for_restart`: nobody counts on it; the oldest of these go first.

        Raises:
            NotFound: the job has ended.
            ConfigError: another one is kept under the name.
        """
        content = msgspec.json.encode({"job": str(job), "forRestart": for_restart})
        self._cluster.request("PUT", _path(name), call=CallKind.STORE, content=content)

    def kept(self, name: str) -> JobId | None:
        """None: no job is kept under the name."""
        try:
            return JobId(decode(self._cluster.request("GET", _path(name)), _KeptJobId).job)
        except NotFound:
            return None

    def start(self, name: str, savepoint: str, request_id: str) -> JobId:
        """A new job of what is kept; sent again under its request id it is the same one."""
        content = msgspec.json.encode({"savepointPath": savepoint, "requestId": request_id})
        path = f"{_path(name)}/start"
        answer = self._cluster.request("POST", path, call=CallKind.SUBMIT, content=content)
        return JobId(field(answer, "jobid"))

    def release(self, name: str) -> None:
        """It is not needed any more."""
        self._cluster.request("DELETE", _path(name), call=CallKind.STORE)


def restart_name(job: JobId) -> str:
    """The name under which a job is kept that somebody may want to start again, as the web UI and the cluster
    itself call it."""
    return f"restart {job}"


def _path(name: str) -> str:
    return f"/unistream/kept-jobs/{quote(name, safe='')}"
