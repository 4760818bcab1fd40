from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from tests.eventually import WAIT_S
from tests.metadata_rows import create_database
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from unistream.base.clock import Clock, SystemClock
from unistream.base.config import Configuration
from unistream.base.ids import EdgeId, OperatorUid, VertexId
from unistream.connector.catalogue import create_discovery
from unistream.connector.static import StaticSource
from unistream.ha.folder_store import FolderHaStore, claim_folder
from unistream.master.cluster.dispatcher import Dispatcher
from unistream.master.service.cluster_services import ClusterServices, master_ports
from unistream.master.shown.cluster_info import ClusterPlaces
from unistream.metadata.store import SqlMetadataStore
from unistream.model.graph import JobEdge, JobGraph, JobVertex, OperatorInfo, Ship
from unistream.model.submission import SubmitRequest
from unistream.port.ha import HaStore
from unistream.storage.artifacts import FsArtifactStore
from unistream.storage.fs import FsCheckpointStorage


def vertex(name: str, parallelism: int, **more: object) -> JobVertex:
    return JobVertex(
        id=VertexId(hashlib.sha256(name.encode()).hexdigest()[:32]),
        name=name,
        operators=(OperatorInfo(uid=OperatorUid(name), name=name, stateful=True),),
        parallelism=parallelism,
        max_parallelism=128,
        **more,  # type: ignore[arg-type]
    )


def graph(name: str = "numbers", parallelism: int = 2, **config: str) -> JobGraph:
    """source -> sink, hash edge."""
    info = StaticSource(pa.table({"k": [1, 2, 3]}), splits=parallelism).info()
    source = vertex("source", parallelism, source=info)
    sink = vertex("sink", parallelism, inputs=1)
    edge = JobEdge(id=EdgeId("e"), source=source.id, target=sink.id, ship=Ship.HASH, key_columns=("k",))
    return JobGraph(
        name=name,
        vertices=(source, sink),
        edges=(edge,),
        config={key.replace("__", "-").replace("_", "."): value for key, value in config.items()},
    )


CHECKPOINTED = {"execution.checkpointing.interval": "20 ms", "restart-strategy.fixed-delay.delay": "1 ms"}


def request(graph_: JobGraph | None = None, **more: object) -> SubmitRequest:
    return SubmitRequest(graph=graph_ or graph(), artifact=b"opaque", **more)  # type: ignore[arg-type]


@dataclass
class Cluster:
    """A dispatcher over scripted workers, real storage and a real database. `reach`: how its next leader
    reaches the HA store; `url`: of a database that it shares, which is there."""

    root: Path
    workers: ScriptedWorkers = field(default_factory=ScriptedWorkers)
    config: dict[str, str] = field(default_factory=dict)
    create_storage: Callable[[str], FsCheckpointStorage] = FsCheckpointStorage
    reach: Callable[[HaStore], HaStore] = lambda store: store
    clock: Clock = field(default_factory=SystemClock)
    log_dir: str = ""
    places: ClusterPlaces = field(default_factory=ClusterPlaces)
    url: str = ""

    def __post_init__(self) -> None:
        if not self.url:
            self.url = f"sqlite:///{self.root / 'metadata.db'}"
            create_database(self.url)
        self.artifacts = FsArtifactStore(str(self.root / "artifacts"))
        self.dispatcher = self.lead()

    def lead(self) -> Dispatcher:
        """A new leader of the cluster, which fences the others."""
        services, folder = self.services(), self.root / "ha"
        ha = self.reach(FolderHaStore(folder, claim_folder(folder)))
        return Dispatcher(Configuration(self.config), services, master_ports(services, ha))

    def services(self) -> ClusterServices:
        return ClusterServices(
            target="mini",
            clock=self.clock,
            create_host=self.workers.create_host,
            create_server=self.workers.create_server,
            connect=self.workers.connect,
            metadata=SqlMetadataStore(self.url),
            checkpoint_root=str(self.root / "checkpoints"),
            savepoint_root=str(self.root / "savepoints"),
            create_storage=self.create_storage,
            artifacts=self.artifacts,
            discover=create_discovery,
            new_id=lambda: uuid.uuid4().hex,
            log_dir=self.log_dir,
            places=self.places,
            secret=b"of a test",
        )

    def store(self) -> SqlMetadataStore:
        return SqlMetadataStore(self.url)


@pytest.fixture(autouse=True)
def pictures_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller gets an older picture of a job that is busy for a second: on a slow machine any job is."""
    monkeypatch.setattr("unistream.master.job.pictures.TIMEOUT_S", WAIT_S)


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    before = set(threading.enumerate())
    made: list[Cluster] = []

    def make(**more: object) -> Cluster:
        root = tmp_path / str(len(made))
        root.mkdir()
        made.append(Cluster(root=root, **more))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for cluster in made:
        cluster.dispatcher.close()
    new = [t for t in threading.enumerate() if t not in before and "fsspec" not in t.name]
    for thread in new:
        thread.join(WAIT_S)  # it was requested to end, or nothing ends it
    left = [thread for thread in new if thread.is_alive()]
    assert not left, f"threads are left: {left}"


@pytest.fixture
def api(make_cluster: Callable[..., Cluster]) -> Iterator[Api]:
    """Jobs run until they are stopped."""
    api = Api(make_cluster(workers=ScriptedWorkers(ends=False)))
    yield api
    api.close()


@pytest.fixture
def job_graph() -> Callable[..., JobGraph]:
    return graph


@pytest.fixture
def submission() -> Callable[..., SubmitRequest]:
    return request


@pytest.fixture
def checkpointed() -> dict[str, str]:
    """Configuration of a job that takes checkpoints and restarts quickly."""
    return dict(CHECKPOINTED)
