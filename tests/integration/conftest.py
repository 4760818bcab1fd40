"""What integration tests share."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _sockets_of_kafka_python(request: pytest.FixtureRequest) -> Iterator[None]:
    """kafka-python leaves sockets of refused connections to the garbage collector, whose warnings would fail
    whatever test runs by then; those of tests that break connections are collected with them."""
    yield
    if "kafka" in request.module.__name__ or "stack" in request.module.__name__:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
