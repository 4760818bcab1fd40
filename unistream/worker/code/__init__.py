"""The user's code on its way to the worker that runs it.

`artifact` packs and signs it, `user_modules` and `shipped_modules` carry the modules of the user's
project, `unsendable` names what cannot be sent, `artifact_cache` keeps what a worker has loaded. The only
place of pickle. May import: nothing of the worker. Start with `artifact`.
"""

from __future__ import annotations

from unistream.worker.code.artifact import load, pack, sha256
from unistream.worker.code.artifact_cache import ArtifactCache

__all__ = [
    "ArtifactCache",
    "load",
    "pack",
    "sha256",
]
