"""The user's code on its way to the worker that runs it; the only place of pickle.

`artifact` packs and opens it, `user_modules` and `shipped_modules` send the modules of the user's project,
`unsendable` names what cannot be sent. May import: nothing of the worker. Start with `artifact`.
"""

from __future__ import annotations

from unistream.worker.code.artifact import (
    ArtifactCache,
    load,
    open_pipeline,
    pack,
    pack_pipeline,
    pack_with,
    sha256,
)
