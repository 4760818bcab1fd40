"""GET /unistream/cluster: who leads, where the cluster keeps what, its versions and its configuration."""

from __future__ import annotations

from fastapi import APIRouter, Response

from unistream.master.cluster import Dispatcher
from unistream.rest.answers import json_answer


class ClusterApi:
    """The handler of a cluster's description."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def routes(self, router: APIRouter) -> None:
        router.get("/unistream/cluster")(self.cluster)

    def cluster(self) -> Response:
        """Answers with the `ClusterInfo`."""
        return json_answer(self._dispatcher.cluster_info())
