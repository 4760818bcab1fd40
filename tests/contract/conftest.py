"""What contract tests share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the modules that tests share, such as transport_wire

from transport_wire import Wire


@pytest.fixture(params=["unix", "tcp"])
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    with ExitStack() as stack:
        yield Wire(request.param == "unix", stack)
