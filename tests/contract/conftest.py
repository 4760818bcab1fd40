"""What contract tests share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.contract.keyed_states import BACKENDS
from tests.contract.state_bench import Bench
from tests.contract.transport_wire import Wire
from tests.metadata_rows import create_database
from unistream.metadata.store import SqlMetadataStore


@pytest.fixture(params=["unix", "tcp", "tls"])
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    with ExitStack() as stack:
        yield Wire(request.param, stack)


@pytest.fixture(params=BACKENDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """Keyed state of each type of backend."""
    made = Bench(request.param, tmp_path)
    yield made
    made.close()


@pytest.fixture
def metadata(database_url: str) -> Iterator[SqlMetadataStore]:
    """A store on an empty database of each kind."""
    create_database(database_url)
    store = SqlMetadataStore(database_url)
    yield store
    store.close()
