"""The first entry in the folder of a cluster, `cluster`, whatever keeps the folder."""

from __future__ import annotations

from typing import Final

import msgspec

PRODUCT: Final = "unistream"


class ClusterMarker(msgspec.Struct, frozen=True):
    """What wrote the folder, and in which format of its adapter."""

    product: str
    format: int
