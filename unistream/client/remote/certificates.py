"""The certificates of a remote cluster."""

from __future__ import annotations

import msgspec

from unistream.client.remote.answers import decode
from unistream.client.remote.rest_client import RestClient
from unistream.model.access import RotationAnswer, RotationBody


def rotate(cluster: RestClient, keep_ms: int) -> str:
    """Gives the cluster another authority; its fingerprint. `keep_ms`: how long what the former one has
    issued is believed."""
    content = msgspec.json.encode(RotationBody(keep_ms))
    response = cluster.request("POST", "/unistream/certificates/rotation", content=content)
    return decode(response, RotationAnswer).fingerprint


def authorities(cluster: RestClient) -> str:
    """Whose certificates the cluster's servers show, PEM.

    Raises:
        NotFound: it has none, since all its servers listen on loopback addresses.
        Unreachable: it does not answer.
    """
    return cluster.request("GET", "/unistream/certificates/authorities").content.decode()
