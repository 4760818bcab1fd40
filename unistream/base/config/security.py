"""Security: who may ask the REST API."""

from __future__ import annotations

from typing import Final

from unistream.base.config.parsing import ConfigOption, one_of, parse_places

REST_AUTHENTICATION: Final = ConfigOption(
    "security.rest.authentication",
    one_of("none", "token"),
    "none",
    "`token`: the REST API answers the owner of the cluster, whose commands and programs on the same machine "
    "find a token by themselves, and who presents one of `unistream token create`. `none`: it answers every "
    "user of this machine, who can then run code as the cluster's owner, and clients that present no token, "
    "such as Flink's. So does the port where workers of a standalone cluster register.",
)
ALLOWED_PATHS: Final = ConfigOption(
    "security.allowed-paths",
    parse_places,
    None,
    "Folders and URLs, with commas between them, below which requests may name a savepoint's directory, "
    "besides the cluster's own folders. Unset: in any object store. A token with the scope `admin` may name "
    "any place.",
)
