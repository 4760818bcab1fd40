"""What tests of the worker share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from unistream.worker.exchange import BlockingPartitions


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlockingPartitions]:
    """Blocking partitions in files below `tmp_path`."""
    store = BlockingPartitions([tmp_path])
    yield store
    store.close()
