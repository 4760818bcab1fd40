"""A cluster of the `make_cluster` fixture behind its REST API, for the tests that ask it over HTTP."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import httpx

from tests.eventually import WAIT_S
from tests.unit.master.described import is_as_described
from unistream import __version__
from unistream.base.clock import SystemClock
from unistream.rest.app import create_app
from unistream.rest.listener import Listener
from unistream.rest.server import RestServer
from unistream.rest.triggers import Triggers


class Api:
    """A served cluster and a plain HTTP client."""

    def __init__(self, cluster: Any, **more: Any) -> None:
        self.cluster = cluster
        self.shutdown_asked = threading.Event()
        self.app = create_app(
            cluster.dispatcher,
            clock=SystemClock(),
            version=__version__,
            triggers=Triggers(lambda: uuid.uuid4().hex),
            on_shutdown=self.shutdown_asked.set,
            **more,
        )
        self.server = RestServer(self.app, Listener("127.0.0.1", 0))
        hooks = {"response": [is_as_described]}
        self.http = httpx.Client(
            base_url=self.server.url,
            trust_env=False,
            verify=False,  # it speaks plain HTTP, and to load certificates takes 25 ms
            timeout=WAIT_S,
            event_hooks=hooks,
        )

    def get(self, path: str, **more: Any) -> Any:
        """What JSON a path that is there answers."""
        answer = self.http.get(path, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def close(self) -> None:
        self.http.close()
        self.server.close()
