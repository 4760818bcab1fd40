"""A sink without a committer, and its writer; subclasses define the name, and how rows are written."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from unistream.base.ids import CheckpointId
from unistream.port.sink import Committer


class PlainSink:
    """Takes rows of any schema and commits nothing."""

    @property
    def global_committer(self) -> bool:
        return False

    def check(self, schema: pa.Schema | None) -> None:
        """Accepts any schema."""

    def create_committer(self) -> Committer | None:
        return None


class PlainWriter:
    """Writes rows at once and has no state."""

    def flush(self, end_of_input: bool) -> None:
        """Does nothing: no row is buffered."""

    def prepare_commit(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        return ()

    def snapshot_state(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        return ()

    def close(self) -> None:
        """Does nothing: the writer holds no resource."""
