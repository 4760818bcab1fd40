"""Session fixtures: the real servers of the local stack.

With pytest-xdist the workers share them: the first worker that needs one starts it and, at the end of
its session, waits for the others before it stops it. That is when its last test is over: the time limit of a
test counts for the fixtures that end with it, too, and the others may have work for an hour.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import budget, crashed, goes_on, own_network
from tests.examples import register_profiles, scale
from tests.nightly import is_due
from tests.postgres import PostgresServer
from tests.spark_start import prepare_environment
from tests.spread import module_of, spread
from unistream.client.machine.home import HOME_VARIABLE
from unistream.testing.devtools.kafka_tools import create_topic
from unistream.testing.devtools.object_store import make_bucket
from unistream.testing.devtools.servers import KAFKA, S3, ZOOKEEPER
from unistream.testing.devtools.stack import shared_server

register_profiles()

SERVERS = pytest.StashKey[ExitStack]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SERVERS] = ExitStack()
    config.pluginmanager.register(crashed)
    config.pluginmanager.register(own_network)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as with `&`: what tests start would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    prepare_environment()
    home = tempfile.mkdtemp(prefix="unistream-home-")  # the history of the user's own jobs stays untouched
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    os.environ[HOME_VARIABLE] = home
    for name in [name for name in os.environ if name.startswith("UNISTREAM_CONF_")]:
        del os.environ[name]  # the user's own configuration is not that of the tests
    # kafka-python 3.0 reads its schemas through an old importlib call; Python 3.11 and 3.12 warn of it
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")
    if file := os.environ.get(goes_on.VARIABLE):
        config.pluginmanager.register(goes_on.GoesOn(config.rootpath, Path(file)))
    if (notes := os.environ.get(budget.VARIABLE)) and not os.environ.get("PYTEST_XDIST_WORKER"):
        recorder = budget.Recorder(Path(notes), time.monotonic())
        config.pluginmanager.register(recorder)
        config.add_cleanup(lambda: recorder.end(time.monotonic()))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """20,000 tests and what they import stay: the collector of garbage need not look at them, neither while
    they come nor later. A test makes much and keeps little: it looks more seldom, too."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 10, 20)
        gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    gc.unfreeze()  # else libraries report at the end what they take for leaks
    session.config.stash[SERVERS].close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests are deselected, unless one is asked for by its id; of the others the longest come first, and
    those that wait for servers stand between those that compute."""
    scale(items)
    items.sort(key=lambda item: (-budget.PARTS.index(budget.part_of(item.nodeid)), "/tidy/" in item.nodeid))
    items[:] = spread(
        items,
        module=lambda item: module_of(item.nodeid),
        waits=lambda item: budget.part_of(item.nodeid) in {budget.GUIDES, budget.INTEGRATION},
    )
    if any("::" in word for word in config.option.file_or_dir):  # not in -W default::DeprecationWarning
        return
    due = is_due()
    left_out = [item for item in items if not due(item.nodeid)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if due(item.nodeid)]


@pytest.fixture(scope="session")
def stack_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all workers of this test run."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "stack"


@pytest.fixture(scope="session")
def kafka(stack_dir: Path, pytestconfig: pytest.Config) -> str:
    """Bootstrap address of a real broker: ``127.0.0.1:<port>``. Topics are not made by themselves."""
    return pytestconfig.stash[SERVERS].enter_context(shared_server(stack_dir / KAFKA, KAFKA))


@pytest.fixture
def topic(kafka: str) -> str:
    """A new one, of two partitions."""
    name = f"source-{uuid.uuid4().hex[:12]}"
    create_topic(kafka, name, partitions=2)
    return name


@pytest.fixture(scope="session")
def zookeeper(stack_dir: Path, pytestconfig: pytest.Config) -> str:
    """Connect string of a real ZooKeeper server: ``127.0.0.1:<port>``."""
    return pytestconfig.stash[SERVERS].enter_context(shared_server(stack_dir / ZOOKEEPER, ZOOKEEPER))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server of this test process, started when a test needs it and ended with the session."""
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind that `metadata.url` may name."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/metadata.db"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.new_database()
    yield url
    server.drop_database(url)


@pytest.fixture(scope="session")
def s3_server(stack_dir: Path, pytestconfig: pytest.Config) -> str:
    """Address of a real S3 server: ``127.0.0.1:<port>``. With UNISTREAM_S3 that of another one, which has the
    credentials of ours, for the tests of `tests/contract`."""
    if given := os.environ.get("UNISTREAM_S3"):
        return given
    return pytestconfig.stash[SERVERS].enter_context(shared_server(stack_dir / S3, S3))


@pytest.fixture
def s3(s3_server: str) -> str:
    """The same. It is the store of this process, and has the bucket ``unistream``."""
    make_bucket(s3_server, "unistream")
    return s3_server
