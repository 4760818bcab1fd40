"""What integration tests share."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.integration.crash_runs import Crashes
from unistream.testing.devtools.kafka_tools import create_topic


@pytest.fixture
def topic(kafka: str) -> str:
    """A new one, of two partitions."""
    name = f"source-{uuid.uuid4().hex[:12]}"
    create_topic(kafka, name, partitions=2)
    return name


@pytest.fixture
def crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crashes:
    """Kills at named places; nothing is armed yet."""
    return Crashes(tmp_path, monkeypatch)
