from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.cli.shell import Shell
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.testing.mini_cluster import DEFAULTS, ThreadHost

PIPELINES = """
import unistream as us
from unistream.connector.datagen import DatagenSource, Sequential

def stream(env, **options):
    source = DatagenSource({"n": Sequential()}, **options)
    return env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")

def bounded(env):
    stream(env, rows=100).sink_to(us.BlackholeSink()).uid("out")

def endless(env):
    stream(env, rows=None, bounded=False, rows_per_second=100).sink_to(us.BlackholeSink()).uid("out")

def failing(env):
    def explode(batch):
        raise ValueError("no such flight")
    stream(env, rows=100).map_batches(explode).sink_to(us.BlackholeSink()).uid("out")

def alone():
    return us.Environment()


def of_two(env, day):
    bounded(env)


def own(env):
    mine = us.Environment()
    bounded(mine)
    return mine


def raising(env):
    return {}["missing"]

def refused(env):
    env.set_parallelism(0)

def empty(env):
    pass

not_callable = 3
"""


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("UNISTREAM_HOME", str(home))
    return home


@pytest.fixture
def pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module in the current folder."""
    name = f"pipelines_{abs(hash(str(tmp_path))):x}"
    (tmp_path / f"{name}.py").write_text(PIPELINES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "")
    return name


@pytest.fixture
def start_cluster() -> Iterator[Callable[..., EmbeddedCluster]]:
    """Session clusters of this process that other commands find; workers are threads."""
    started: list[EmbeddedCluster] = []

    def start(**options: str) -> EmbeddedCluster:
        config = Configuration({**DEFAULTS, "taskmanager.numberOfTaskSlots": "2", **options})
        started.append(EmbeddedCluster("mini", config, create_host=ThreadHost, max_workers=2))
        return started[-1]

    yield start
    for cluster in started:
        cluster.close()


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)
