"""Draining a worker of a remote cluster: its tasks move, then it ends."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import msgspec

from unistream.base.errors import NotFound
from unistream.base.ids import TaskManagerId
from unistream.client.remote.absence import Absence
from unistream.client.remote.answers import decode
from unistream.client.remote.policy import CallKind
from unistream.client.remote.poll import Poll
from unistream.client.remote.rest_client import RestClient
from unistream.model.job_info import DrainPhase, DrainStatus

OnDrain = Callable[[DrainStatus], None]


class DrainClient:
    """The drain of one worker. Raises as `RestClient`."""

    def __init__(self, cluster: RestClient, worker: TaskManagerId) -> None:
        self._cluster = cluster
        self._worker = worker
        self._path = f"/unistream/workers/{quote(worker, '')}/drain"

    def begin(self, *, wait: bool) -> DrainStatus:
        """The worker gets no more tasks, and those that it has move. Asked again, it goes on.

        Raises:
            ConfigError: there is no such worker; or there are too few slots elsewhere, and not `wait`.
        """
        content = msgspec.json.encode({"wait": wait})
        doubt = f"whether worker {self._worker} is drained is not known: ask again, which changes nothing"
        return decode(
            self._cluster.request("POST", self._path, call=CallKind.REFUSE, content=content, doubt=doubt),
            DrainStatus,
        )

    def status(self, timeout_s: float | None = None) -> DrainStatus:
        """Raises NotFound: nobody drains it, or this master has never had it."""
        return decode(self._cluster.request("GET", self._path, timeout_s=timeout_s), DrainStatus)

    def finished(self, on_status: OnDrain) -> DrainStatus:
        """Waits until the worker has ended. `on_status`: called with each answer.

        Raises:
            NotFound: its master was replaced, and the next one does not drain it.
            Unreachable: the cluster is away for longer than `client.timeout`.
        """
        absence = Absence(self._cluster.timeout_s, heard=True, refusable=False)
        poll = Poll(None)
        while poll.next():
            try:
                status = absence.ask(self.status)
            except NotFound as error:
                raise NotFound(
                    f"another master leads now, which does not drain worker {self._worker}: "
                    "'unistream taskmanager list' shows whether it is still there"
                ) from error
            if status is None:
                continue
            on_status(status)
            if status.phase is not DrainPhase.DRAINING:
                return status
        raise AssertionError("it waits for ever")
