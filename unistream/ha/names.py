"""Names and values of a `HaStore`: what every adapter accepts, so that each can store it as it is."""

from __future__ import annotations

import re
from typing import Final

from unistream.base.errors import ConfigError
from unistream.base.limits import KIB

VALUE_BYTES_MAX: Final = 512 * KIB  # ZooKeeper refuses requests of 1 MiB; pointers have some hundred bytes
NAME_CHARACTERS_MAX: Final = 1_024
COMPONENTS_MAX: Final = 16

RESERVED: Final = frozenset({"cluster", "leader", "election"})
"""First components that the adapters keep for themselves."""

_COMPONENT: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


def components(name: str) -> tuple[str, ...]:
    """The components of a name such as ``jobs/3f2a/checkpoints/12``; each is safe as the name of a file and
    of a znode.

    Raises:
        ConfigError: it has other characters, would leave the folder of the cluster, or is reserved.
    """
    parts = tuple(name.split("/"))
    plain = len(name) <= NAME_CHARACTERS_MAX and len(parts) <= COMPONENTS_MAX
    if not plain or any(_COMPONENT.fullmatch(part) is None for part in parts):
        raise ConfigError(
            f"{name[:80]!r} is not a name in the store of high availability: up to {COMPONENTS_MAX} "
            "components of letters, digits, '_', '-' and '.' between slashes, none of which begins with a dot"
        )
    if parts[0] in RESERVED:
        raise ConfigError(f"{name[:80]!r} is kept for the election in the store of high availability")
    return parts


def check_value(name: str, value: bytes) -> None:
    """Raises ConfigError if it is larger than a pointer may be."""
    if len(value) > VALUE_BYTES_MAX:
        raise ConfigError(
            f"a value of {len(value)} bytes for {name!r} is too large for the store of high availability, "
            f"which holds at most {VALUE_BYTES_MAX}; store it as a file and its URL here"
        )
