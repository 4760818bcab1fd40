"""What the discoveries of a source have found, as it is passed between the master and a connector."""

from __future__ import annotations

import msgspec

from unistream.model.messages import Split


class KnownSplits(msgspec.Struct, frozen=True, kw_only=True):
    """What the first discovery of a job and all later ones have found.

    Attributes:
        ids: Of all splits ever found.
        origin: Identity of what is read, as the connector names it (the id of a Kafka topic): under the same
            name there may be another one by now. Empty: not known.
    """

    ids: frozenset[str]
    origin: str = ""


class FoundSplits(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one discovery. `splits`: at least all that are new, each at its start position."""

    splits: tuple[Split, ...]
    origin: str = ""
