"""Who may ask a REST server that a test makes by itself."""

from __future__ import annotations

from pathlib import Path

from unistream.base.clock import SystemClock
from unistream.ha.folder_store import FolderHaStore, claim_folder
from unistream.master.store import TokenStore
from unistream.rest.access import AccessControl
from unistream.rest.allowed_paths import AllowedPaths
from unistream.rest.audit import AuditLog


def access_in(folder: Path, *, required: bool = True) -> AccessControl:
    """Its tokens and its audit log are in `folder`, which is made. `required` False: everybody may."""
    folder.mkdir()
    tokens = TokenStore(FolderHaStore(folder, claim_folder(folder)), SystemClock(), b"of a test")
    audit = AuditLog(folder / "audit")
    return AccessControl(tokens, SystemClock(), AllowedPaths((), None), audit, required=required)
