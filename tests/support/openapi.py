"""Writes the OpenAPI document of the REST API, from which the web UI's client is generated.

python -m tests.support.openapi ui/openapi.json
"""

from __future__ import annotations

import sys
from pathlib import Path

import httpcore
import msgspec

from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster

TIMEOUT_S = 60


def served_document() -> str:
    """What a cluster of this version serves, as text that does not change from one version to the next."""
    with EmbeddedCluster("local", Configuration({})) as cluster:
        timeouts = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), TIMEOUT_S)}
        answer = httpcore.request("GET", f"{cluster.rest_url}/openapi.json", extensions=timeouts)
    document = msgspec.json.decode(answer.content)
    document["info"]["version"] = "0"
    return msgspec.json.format(msgspec.json.encode(document, order="deterministic"), indent=1).decode() + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(served_document(), encoding="utf-8")
