"""A catalog in a folder, and sinks to its table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.iceberg_lake import Lake
from tests.unit.connector.iceberg.parts import Parts


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def parts(lake: Lake) -> Iterator[Parts]:
    made = Parts(lake)
    yield made
    made.close()
