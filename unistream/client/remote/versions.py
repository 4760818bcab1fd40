"""Which clusters a client may submit to: a job's graph, its pickled code and its state have no format that
two releases have to agree on, so both must be of one release.

    client   cluster
    0.1.0    0.1.4     the same major and minor number: yes
    0.1.0    0.2.0     no
    0.1.0    Flink     no: its API has the same paths
"""

from __future__ import annotations

from typing import Final

import msgspec

from unistream.base.errors import ConfigError
from unistream.base.releases import is_together, series
from unistream.client.remote.answers import decode
from unistream.client.remote.rest_client import RestClient

_OURS: Final = "unistream"


class _Config(msgspec.Struct):
    """What is read of Flink's `/config`. `revision`: name and version of a cluster of ours."""

    version: str = msgspec.field(name="flink-version", default="")
    revision: str = msgspec.field(name="flink-revision", default="")


def check_version(cluster: RestClient) -> None:
    """Checks the cluster's release before anything is submitted, stopped or replaced.

    Raises:
        ConfigError: the cluster is of another release than this client, or none of unistream.
        Unreachable: it does not answer.
    """
    from unistream import __version__

    found = decode(cluster.request("GET", "/config"), _Config)
    if not found.revision.startswith(_OURS):
        what = f"Flink {found.version}" if found.version else "something else"
        raise ConfigError(f"at {cluster.url} runs {what}, and no cluster of unistream; nothing was submitted")
    if not is_together(__version__, found.version):
        raise ConfigError(
            f"the cluster at {cluster.url} runs unistream {found.version}, and this client is "
            f"{__version__}: major and minor number must be the same; nothing was submitted, stopped or "
            f"replaced. Install unistream {series(found.version)}.* here, or start the cluster with "
            f"{series(__version__)}.*"
        )
