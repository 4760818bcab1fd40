"""Whether what was submitted to another version can be started by this one."""

from __future__ import annotations

from unistream.base.errors import ConfigError
from unistream.base.releases import is_together, own_release, series
from unistream.model.stored_job import StoredJob


def check_stored(stored: StoredJob) -> None:
    """Raises ConfigError: its code was packed by another series, so it is not opened here; what to do."""
    own = own_release().version
    if not is_together(stored.version, own):
        raise ConfigError(
            f"it was submitted to unistream {stored.version}, and this is {own}, which does not open its "
            f"code: start the cluster with {series(stored.version)}.* again, which goes on with it; end that "
            "with 'unistream cluster stop --savepoint', and start its pipeline with "
            f"{series(own)}.* from the savepoint, with 'unistream run -s'"
        )
