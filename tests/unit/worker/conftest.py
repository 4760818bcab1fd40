"""What tests of the worker share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from unistream.worker.exchange import BlockingPartitions

sys.path.insert(0, str(Path(__file__).parent))  # for the modules that tests share: blocking_files


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlockingPartitions]:
    """Blocking partitions in files below `tmp_path`."""
    store = BlockingPartitions([tmp_path])
    yield store
    store.close()
