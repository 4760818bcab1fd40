"""The certificates of a remote cluster."""

from __future__ import annotations

from unistream.client.remote.rest_client import RestClient


def authorities(cluster: RestClient) -> str:
    """Whose certificates the cluster's servers show, PEM.

    Raises:
        NotFound: it has none, since all its servers listen on loopback addresses.
        Unreachable: it does not answer.
    """
    return cluster.request("GET", "/unistream/certificates/authorities").content.decode()
