"""Which versions of clients and clusters go together."""

from __future__ import annotations

import pytest

from tests.unit.client.servers import Server, answers
from unistream import __version__
from unistream.base.errors import ConfigError
from unistream.client.remote.rest_client import RestClient
from unistream.client.remote.versions import check_version


def test_a_cluster_of_this_version_is_ours() -> None:
    config = {"flink-version": __version__, "flink-revision": f"unistream {__version__}"}
    with Server(answers(lambda _: (200, config))) as server, RestClient(server.url) as cluster:
        check_version(cluster)


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"flink-version": "2.1.0", "flink-revision": "abc @ 2026"}, "runs Flink 2.1.0"),
        ({"name": "Anything"}, "runs something else"),
    ],
    ids=["Flink", "any other server"],
)
def test_what_is_no_cluster_of_ours_is_refused(config: dict[str, str], what: str) -> None:
    with (
        Server(answers(lambda _: (200, config))) as server,
        RestClient(server.url) as cluster,
        pytest.raises(ConfigError, match=f"at {server.url} {what}, and no cluster of unistream"),
    ):
        check_version(cluster)
