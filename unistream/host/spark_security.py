"""Whether Spark's own connections keep what goes over them: its tasks carry the keys of workers.

Where all of a cluster is on one machine its connections are nobody else's, and nothing is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from unistream.base.config import INTERNAL_TLS, JOBMANAGER_BIND, Configuration
from unistream.base.hosts import is_loopback

AUTHENTICATE: Final = "spark.authenticate"
ENCRYPT: Final = "spark.network.crypto.enabled"
ENCRYPTS: Final = (ENCRYPT, "spark.authenticate.enableSaslEncryption", "spark.ssl.rpc.enabled")
"""Each of these encrypts, by itself, what Spark's processes say to each other."""


def leaves_machine(config: Configuration) -> bool:
    """Whether a cluster's workers may be on other hosts, and so get keys with their tasks."""
    return config.find(INTERNAL_TLS) is True or not is_loopback(config.get(JOBMANAGER_BIND))


def exposure(setting: Callable[[str], str | None], master: str) -> str | None:
    """Why others on the network may get what Spark carries, for people; None: they do not.

    Args:
        setting: Of the Spark context, by its key.
        master: Of Spark.

    >>> exposure({AUTHENTICATE: "true", ENCRYPT: "TRUE"}.get, "spark://m:7077") is None
    True
    >>> exposure({AUTHENTICATE: "true"}.get, "yarn")[:62]
    'yarn and its executors speak plain text (spark.network.crypto.'
    """
    lacks = {
        "take everybody for one of them": None if _is_on(setting, AUTHENTICATE) else AUTHENTICATE,
        "speak plain text": None if any(_is_on(setting, key) for key in ENCRYPTS) else ENCRYPT,
    }
    off = [f"{what} ({key} is off)" for what, key in lacks.items() if key is not None]
    if not off:
        return None
    keys = " and ".join(key for key in lacks.values() if key is not None)
    return (
        f"{master} and its executors {' and '.join(off)}, so others on their network may get the keys that "
        f"workers are given: turn on {keys}, for Spark's own processes and for this cluster"
    )


def _is_on(setting: Callable[[str], str | None], key: str) -> bool:
    return (setting(key) or "").strip().lower() == "true"
