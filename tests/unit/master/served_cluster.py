"""A cluster of the `make_cluster` fixture behind its REST API, for the tests that ask it over HTTP."""

from __future__ import annotations

import shutil
import tempfile
import threading
import uuid
from pathlib import Path
from typing import Any

import httpx

from tests.eventually import WAIT_S
from tests.unit.master.described import is_as_described
from unistream import __version__
from unistream.base.clock import SystemClock
from unistream.client.machine import home
from unistream.ha.folder_store import FolderHaStore, claim_folder
from unistream.master.store import TokenStore
from unistream.rest.access import AccessControl
from unistream.rest.allowed_paths import AllowedPaths
from unistream.rest.app import create_app
from unistream.rest.audit import AuditLog
from unistream.rest.listener import Listener
from unistream.rest.server import RestServer
from unistream.rest.triggers import Triggers


class Api:
    """A served cluster and a plain HTTP client, which presents the owner's token. Clients of ours find that
    in the home of this process.

    Attributes:
        access: Of the cluster.
        folder: With its store of tokens and its audit log.
        as_owner: The header of a request of the owner's.
    """

    def __init__(self, cluster: Any, **more: Any) -> None:
        self.cluster = cluster
        self.shutdown_asked = threading.Event()
        self.folder = Path(tempfile.mkdtemp(prefix="unistream-api-"))
        store = FolderHaStore(self.folder, claim_folder(self.folder))
        own = [str(cluster.root)] if hasattr(cluster, "root") else []
        paths = AllowedPaths(own, None)
        self.access = AccessControl(
            TokenStore(store, SystemClock(), b"of a test"),
            SystemClock(),
            paths,
            AuditLog(self.folder / "audit"),
        )
        self.app = create_app(
            cluster.dispatcher,
            clock=SystemClock(),
            version=__version__,
            triggers=Triggers(lambda: uuid.uuid4().hex),
            on_shutdown=self.shutdown_asked.set,
            access=self.access,
            **more,
        )
        self.server = RestServer(self.app, Listener("127.0.0.1", 0))
        self._entry = home.register(
            uuid.uuid4().hex,
            url=self.server.url,
            target="local",
            now_ms=SystemClock().wall_ms(),
            token=self.access.owner_token,
        )
        self.as_owner = {"Authorization": f"Bearer {self.access.owner_token}"}
        hooks = {"response": [is_as_described]}
        self.http = httpx.Client(
            base_url=self.server.url,
            trust_env=False,
            verify=False,  # it speaks plain HTTP, and to load certificates takes 25 ms
            timeout=WAIT_S,
            event_hooks=hooks,
            headers=self.as_owner,
        )

    def get(self, path: str, **more: Any) -> Any:
        """What JSON a path that is there answers."""
        answer = self.http.get(path, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def close(self) -> None:
        self._entry.unlink(missing_ok=True)
        self.http.close()
        self.server.close()
        shutil.rmtree(self.folder, ignore_errors=True)
