"""What integration tests share."""

from __future__ import annotations

import gc
import uuid
import warnings
from collections.abc import Iterator
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


@pytest.fixture(autouse=True)
def _sockets_of_kafka_python(request: pytest.FixtureRequest) -> Iterator[None]:
    """kafka-python leaves sockets of refused connections to the garbage collector, whose warnings would fail
    whatever test runs by then; those of tests that break connections are collected with them."""
    yield
    if "kafka" in request.module.__name__ or "stack" in request.module.__name__:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.fixture
def crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crashes:
    """Kills at named places; nothing is armed yet."""
    return Crashes(tmp_path, monkeypatch)
