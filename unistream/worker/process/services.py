"""The ports of a TaskManager in its own process: threads, sockets and files."""

from __future__ import annotations

import logging
import os
import socket
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from unistream.base import config as options
from unistream.base.clock import Clock, SystemClock
from unistream.base.config import Configuration
from unistream.base.crash_points import crash_points, no_crash
from unistream.base.errors import ConfigError
from unistream.base.machine import resident_bytes, usable_cores, usable_memory_bytes
from unistream.model.credentials import Credentials
from unistream.model.messages import Answer, FetchArtifact, RegisterTaskManager
from unistream.model.resources import MachineResources
from unistream.port.host import TaskManagerSpec
from unistream.port.storage import StateReader, StateWriter
from unistream.port.transport import ControlClient, ControlHandler, DataClient, PartitionSource, Server
from unistream.worker.code import ArtifactCache
from unistream.worker.exchange import BlockingPartitions, LocalFolder, spill_roots
from unistream.worker.process.ending import Ending, Exit
from unistream.worker.process.lease import Lease
from unistream.worker.process.ports import MasterConnection, WorkerPorts, WorkerStores
from unistream.worker.process.reports import OnSilence, ReportSender, call_patiently, unheard
from unistream.worker.task import TaskThread

SNAPSHOT_THREADS: Final = 4  # they wait for the storage, not for a core
COMMIT_THREADS: Final = 16  # a table that hangs must not delay the others

_log = logging.getLogger(__name__)


class WorkerPlace(NamedTuple):
    """Where a worker listens, and by which name or address others reach it. `ports`: of which it takes the
    first free one; none: no other host reaches it."""

    bind: str
    host: str
    ports: tuple[int, ...]


def place_of(spec: TaskManagerSpec) -> WorkerPlace:
    """The place of the worker that `spec` describes. Raises ConfigError: there is no such host."""
    config = Configuration(spec.config)
    from unistream.net.address import own_address_to

    if spec.credentials is None:
        return WorkerPlace(config.get(options.JOBMANAGER_BIND), "", ())
    host = config.find(options.WORKER_HOST) or own_address_to(spec.master)
    return WorkerPlace(config.find(options.WORKER_BIND) or host, host, config.get(options.WORKER_PORTS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The adapters that workers use.

    Attributes:
        server: (place, control handler, partitions) -> a listening server.
        control_client: Flight location -> requests to it.
        data_client: Configuration -> streams from other processes.
        state_writer, state_reader: fsspec URL of a snapshot's directory -> its files.
        clock: Of all timeouts for which this worker waits for others.
        lease_clock: Of the right to live, which the master takes away by its own clock.
        on_silence: Called when the master does not answer the registration.
        on_registered: Called when it has: with the worker as it is registered.
        on_broken: Called when the worker ends by itself, or its master has given it up: with the reason.
    """

    server: Callable[[WorkerPlace, ControlHandler, PartitionSource], Server]
    control_client: Callable[[str], ControlClient]
    data_client: Callable[[Configuration], DataClient]
    state_writer: Callable[[str], StateWriter]
    state_reader: Callable[[str], StateReader]
    clock: Clock = field(default_factory=SystemClock)
    lease_clock: Clock = field(default_factory=SystemClock)
    crash_point: Callable[[str], None] = no_crash
    on_silence: OnSilence = unheard
    on_registered: Callable[[TaskManagerSpec], None] = lambda _spec: None
    on_broken: Callable[[TaskManagerSpec, str], None] = lambda _spec, _why: None


def default_services(
    clock: Clock | None = None,
    secret_for: Callable[[str], str | None] | None = None,
    credentials: Credentials | None = None,
) -> Services:
    """Arrow Flight and fsspec.

    Args:
        clock: Of timeouts; None: the system's.
        secret_for: What is presented to the master at an address; None: nothing, over a socket that nobody
            else reaches.
        credentials: What this worker shows to processes on other hosts; None: all are on this one.

    Raises:
        ConfigError: crash points are enabled outside of a test.
    """
    from unistream.net.client import FlightControlClient, FlightDataClient
    from unistream.storage.state_files import FsStateReader, FsStateWriter

    clock = clock or SystemClock()
    return Services(
        clock=clock,
        server=partial(_listening, credentials),
        control_client=lambda address: FlightControlClient(
            address,
            secret=None if secret_for is None else partial(secret_for, address),
            credentials=credentials,
        ),
        data_client=lambda config: FlightDataClient(
            config.get(options.PARTITION_REQUEST_TIMEOUT), clock, credentials
        ),
        state_writer=FsStateWriter,
        state_reader=FsStateReader,
        crash_point=crash_points(os.environ),
    )


def _listening(
    credentials: Credentials | None,
    place: WorkerPlace,
    control: ControlHandler,
    partitions: PartitionSource,
) -> Server:
    """Raises ConfigError: it cannot listen at that place."""
    from unistream.net.server import FlightServer

    try:
        return FlightServer(
            place.bind,
            control=control,
            partitions=partitions,
            ports=place.ports,
            credentials=credentials,
            host=place.host,
        )
    except ConfigError as error:
        if not place.ports:
            raise
        raise ConfigError(
            f"{error}: set {options.WORKER_BIND.key} to an address of this host, such as 0.0.0.0, and "
            f"{options.WORKER_PORTS.key} to ports that are free ({options.WORKER_HOST.key} is {place.host})"
        ) from error


def worker_ports(spec: TaskManagerSpec, services: Services) -> WorkerPorts:
    """The ports of the worker that `spec` describes. Nothing runs or listens yet."""
    config, clock = Configuration(spec.config), services.clock
    exit_ = Exit(lambda why: _log.info("event=task_manager_ends task_manager=%s reason=%s", spec.id, why))
    folders = spill_roots(config.find(options.TMP_DIRS), tempfile.gettempdir())
    fetching = services.control_client(spec.master)

    def fetch(message: FetchArtifact) -> Answer:
        patience_ms = config.get(options.HEARTBEAT_TIMEOUT)
        return call_patiently(fetching, message, clock=clock, patience_ms=patience_ms, stop=exit_.decided)

    return WorkerPorts(
        host=spec.host or socket.gethostname(),
        pid=os.getpid(),
        hardware=MachineResources(cpu_cores=usable_cores(), memory_bytes=usable_memory_bytes()),
        resident_bytes=resident_bytes,
        clock=clock,
        exit=exit_,
        server=partial(services.server, place_of(spec)),
        data=services.data_client(config),
        master=_master_connection(spec, config, services, exit_, fetching),
        stores=WorkerStores(
            blocking=BlockingPartitions(folders, spec.id),
            state_folder=LocalFolder(folders[0]),
            tmp_dir=str(folders[0]),
            state_writer=services.state_writer,
            state_reader=services.state_reader,
        ),
        code=ArtifactCache(fetch),
        new_task=TaskThread,
        may_block=True,
        snapshots=ThreadPoolExecutor(SNAPSHOT_THREADS, thread_name_prefix="snapshot"),
        commits=ThreadPoolExecutor(COMMIT_THREADS, thread_name_prefix="commit"),
        crash_point=services.crash_point,
    )


def _master_connection(
    spec: TaskManagerSpec, config: Configuration, services: Services, exit_: Exit, fetching: ControlClient
) -> MasterConnection:
    """Separate connections, so that a waiting report does not delay heartbeats."""
    clock, patience_ms = services.clock, config.get(options.HEARTBEAT_TIMEOUT)
    reporting, beating = services.control_client(spec.master), services.control_client(spec.master)
    lease = Lease(
        beating,
        clock=services.lease_clock,
        interval_ms=config.get(options.HEARTBEAT_INTERVAL),
        timeout_ms=patience_ms,
        on_lost=exit_.end,
        failures_max=config.get(options.HEARTBEAT_FAILURES),
        watch_parent=not spec.standalone,
    )

    def register(message: RegisterTaskManager, done: Callable[[Answer], None]) -> None:
        answer = call_patiently(
            reporting,
            message,
            clock=clock,
            patience_ms=config.get(options.REGISTRATION_TIMEOUT) if spec.standalone else patience_ms,
            stop=exit_.decided,
            on_silence=services.on_silence,
        )
        done(answer)
        services.on_registered(spec)

    return MasterConnection(
        register=register,
        reports=ReportSender(
            reporting,
            clock=clock,
            patience_ms=patience_ms,
            on_answer=lease.renew,
            on_give_up=lambda why: exit_.end(why, Ending.MASTER_LOST),
        ),
        lease=lease,
        clients=(reporting, fetching, beating),
    )
