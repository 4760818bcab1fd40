"""The REST server of one of several masters: it listens for as long as the process runs."""

from __future__ import annotations

from functools import partial
from typing import Final

from unistream.base.closing import Closing
from unistream.base.config import Configuration
from unistream.base.releases import own_release
from unistream.client.embedded.cluster_trust import ClusterTrust
from unistream.client.remote.address import elected_address
from unistream.rest.server import RestServer
from unistream.rest.standby import MasterFront, RestApp
from unistream.trust.contexts import client_context

LOOK_UP_S: Final = 3.0  # of a request to a standby: where the leader is


class MasterServer(Closing):
    """See the module. A standby passes requests on to the leader that the election has published.

    Raises:
        ConfigError: its address cannot be used, or how ZooKeeper is reached is not said.
    """

    def __init__(self, config: Configuration, trust: ClusterTrust) -> None:
        self._leader = elected_address(config)
        self._front = MasterFront(
            partial(self._leader.url, LOOK_UP_S),
            config,
            version=own_release().version,
            context=client_context(trust.roots) if trust.encrypts_rest else None,
        )
        try:
            self._server = RestServer(self._front, trust.listener())
        except BaseException:
            self._leader.close()
            raise

    @property
    def url(self) -> str:
        """The server's URL, the same for as long as it runs."""
        return self._server.url

    def lead(self, app: RestApp) -> None:
        """Makes `app` answer, from now on."""
        self._front.lead(app)

    def stand_by(self) -> None:
        """Makes the leader answer, from now on."""
        self._front.stand_by()

    def close(self) -> None:
        self._server.close()
        self._leader.close()
