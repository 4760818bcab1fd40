"""Which places a request may name: a savepoint's directory, the snapshot that a job starts from.

The cluster reads and writes there as its owner. An admin may name any place; everybody else one below the
cluster's own folders or below `security.allowed-paths`, or, unless that is set, in an object store. Every
path that takes a place asks here: directly, in options, or in a job that is submitted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

from unistream.base.config import ALLOWED_PATHS, CHECKPOINT_DIR, SAVEPOINT_DIR
from unistream.base.errors import Forbidden
from unistream.core.access import Identity
from unistream.model.access import Scope
from unistream.model.submission import SubmitRequest
from unistream.rest.requests import target

_SCHEME: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):(?://)?")
_SAME: Final = {"s3a": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs"}
SHOWN_CHARS: Final = 200


class RequestedPlace(NamedTuple):
    """A folder. `scheme`: of its store; "": of this machine, without symbolic links in it."""

    scheme: str
    path: str

    @classmethod
    def of(cls, text: str) -> RequestedPlace:
        """The place that a path or URL names, as the cluster would open it."""
        found = _SCHEME.match(text)
        scheme = "" if found is None else found[1].lower()
        rest = text if found is None else text[found.end() :]
        if scheme in ("", "file"):
            return cls("", os.path.realpath(unquote(rest) if scheme else rest))
        return cls(_SAME.get(scheme, scheme), "/" + os.path.normpath(rest).strip("/"))

    def is_below(self, root: RequestedPlace) -> bool:
        """It is that folder, or in it."""
        return self.scheme == root.scheme and (
            self.path == root.path or self.path.startswith(root.path.rstrip("/") + "/")
        )


class AllowedPaths:
    """See the module.

    Args:
        own: The cluster's own folders.
        allowed: Those of the configuration; None: it names none.
    """

    def __init__(self, own: Iterable[str], allowed: Iterable[str] | None) -> None:
        self._roots = [RequestedPlace.of(text) for text in (*own, *(allowed or ()))]
        self._stores = allowed is None

    def check(self, text: str | None, identity: Identity) -> None:
        """None: the cluster chooses.

        Raises:
            ConfigError: it is no place for a savepoint (`requests.target`).
            Forbidden: it is not for who asks to name.
        """
        if text is None or identity.scope.allows(Scope.ADMIN):
            return
        target(text)
        place = RequestedPlace.of(text)
        if (self._stores and place.scheme) or any(place.is_below(root) for root in self._roots):
            return
        raise Forbidden(
            f"{text[:SHOWN_CHARS]!r} is not in a folder that token {identity.name!r} may name: the cluster's "
            f"own, or one of {ALLOWED_PATHS.key}; others need the scope 'admin'"
        )

    def check_options(self, config: Mapping[str, str], identity: Identity) -> None:
        """Where a job would write by these options. Raises as `check`."""
        for option in (CHECKPOINT_DIR, SAVEPOINT_DIR):
            self.check(config.get(option.key), identity)

    def check_submission(self, request: SubmitRequest, identity: Identity) -> None:
        """Where a job would begin, and where it would write its snapshots. Raises as `check`."""
        graph = request.graph
        self.check(request.savepoint, identity)
        self.check(None if graph.bootstrap is None else graph.bootstrap.directory, identity)
        self.check_options({**graph.config, **request.config}, identity)
