"""Results of split discovery, as passed between the master and a connector."""

from __future__ import annotations

import msgspec

from unistream.model.messages import Split


class KnownSplits(msgspec.Struct, frozen=True, kw_only=True):
    """Results of all discoveries of a job so far.

    Attributes:
        ids: Of all splits ever found.
        origin: The connector's identity of what is read (the id of a Kafka topic), because another one may
            have the same name later. Empty: not known.
    """

    ids: frozenset[str]
    origin: str = ""


class FoundSplits(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one discovery. `splits`: at least all new ones, each at its start position."""

    splits: tuple[Split, ...]
    origin: str = ""
