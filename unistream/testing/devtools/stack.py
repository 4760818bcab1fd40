"""A real Kafka broker, ZooKeeper server and S3 server on this machine, for tests, demos and development.

    with LocalStack(folder) as stack:            # ends with this process, whatever happens
        stack.address("kafka")                   # 127.0.0.1:<port>

    up(folder); …; down(folder)                  # outlives this process (`unistream stack`)

Tests want ports that nobody else has. Who types `unistream stack up` wants those that every page names: it
takes the usual ones where they are free.

What runs is recorded in ``<folder>/stack.json``; logs and data are below ``<folder>/<server>/``.
Data stay when the servers stop; remove the folder to start afresh.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, Self

import msgspec

from unistream.base.closing import Closing
from unistream.base.errors import UNDECODABLE, ConfigError, CorruptSnapshot, Unreachable
from unistream.testing.devtools.jars import java
from unistream.testing.devtools.process import (
    ProcessId,
    end,
    file_lock,
    free_ports,
    port_is_free,
    process_id,
    start_bound,
    start_detached,
)
from unistream.testing.devtools.servers import HOST, KAFKA, SERVERS, ZOOKEEPER, ServerSpec

RECORD: Final = "stack.json"
LOCK: Final = "stack.lock"
START_ATTEMPTS: Final = 3  # a port that was free may be taken before the server binds it
POLL_S: Final = 0.1
USED_AT_MOST_S: Final = 3_600.0  # by other processes; a session of tests may take so long


class ServerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A server that was started; `ports` are kept for the next start."""

    process: ProcessId
    ports: tuple[int, ...]
    started_ms: int


class StackRecord(msgspec.Struct, frozen=True, kw_only=True):
    version: int = 1
    servers: dict[str, ServerRecord] = {}


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`state`: running (it answers), starting (it lives, and does not answer) or stopped."""

    name: str
    state: str
    address: str | None
    pid: int | None
    started_ms: int | None
    log: str


def up(
    folder: Path, servers: Sequence[str] = (KAFKA, ZOOKEEPER), *, as_usual: bool = False
) -> list[ServerStatus]:
    """Starts what does not run yet and waits until it answers; servers outlive this process.

    Args:
        folder: For data, logs and the record; made if absent.
        servers: Any of "kafka", "zookeeper", "s3".
        as_usual: For people: on the usual port (9092, 2181, 9000) if that is free, and a topic is made when
            a program first writes to it.

    Raises:
        ConfigError: unknown server, Java or Maven is missing, or a server refuses its configuration.
        Unreachable: a server did not answer in time. What this call started has been stopped.
    """
    _start(folder.absolute(), _known(servers), start_detached, as_usual=as_usual)
    return status(folder)


def down(folder: Path, servers: Sequence[str] = (KAFKA, ZOOKEEPER)) -> list[str]:
    """Ends the servers recorded in `folder`; names of those that ran. Safe to repeat."""
    folder = folder.absolute()
    if not (folder / RECORD).is_file():
        return []
    with file_lock(folder / LOCK):
        record = _read(folder)
        names = [n for n in _known(servers) if n in record.servers and record.servers[n].process.alive]
        _end_all({name: record.servers[name] for name in names})
    return names


def status(folder: Path) -> list[ServerStatus]:
    """Every server of the stack, as it is now."""
    folder = folder.absolute()
    record = _read(folder)
    return [_status_of(folder, spec, record.servers.get(spec.name)) for spec in SERVERS.values()]


def address_of(folder: Path, server: str) -> str:
    """``host:port`` of a server that runs. Raises ConfigError: it does not."""
    found = next(one for one in status(folder) if one.name == server)
    if found.address is None or found.state != "running":
        raise ConfigError(f"the local {server} does not run: 'unistream stack up {server}' starts it")
    return found.address


def log_tail(folder: Path, server: str, lines: int = 50) -> str:
    """Last lines of a server's log.

    Raises:
        ConfigError: no such server, or it was never started in this folder.
    """
    [name] = _known([server])
    path = _log(folder.absolute(), name)
    if not path.is_file():
        raise ConfigError(f"{name} was never started in {folder}: there is no {path}")
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


class LocalStack(Closing):
    """Servers that live as long as a `with` block, and no longer than the thread that entered it.

    What already runs in the folder is used, and left running at the end.

    Args:
        folder: For data, logs and the record; made if absent.
        servers: Any of "kafka", "zookeeper", "s3".
        brief: Java optimises little: half the processor time in the first minutes, and more later.
    """

    def __init__(
        self, folder: Path, servers: Sequence[str] = (KAFKA, ZOOKEEPER), *, brief: bool = False
    ) -> None:
        self._folder = folder.absolute()
        self._brief = brief
        self._servers = _known(servers)
        self._children: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            _start(self._folder, self._servers, self._bound, as_usual=False)
        except BaseException:
            self.close()
            raise
        return self

    def address(self, server: str) -> str:
        """``host:port`` for clients."""
        [name] = _known([server])
        record = _read(self._folder).servers.get(name)
        if record is None:
            raise ConfigError(f"{name} is not part of the stack in {self._folder}")
        return f"{HOST}:{record.ports[0]}"

    def process(self, server: str) -> ProcessId:
        """The process of a server, for tests that kill it."""
        return _read(self._folder).servers[server].process

    def log_tail(self, server: str, lines: int = 50) -> str:
        return log_tail(self._folder, server, lines)

    def close(self) -> None:
        """Ends what this object started, and waits for it. Safe to repeat."""
        ours = {child.pid for child in self._children}
        running = _read(self._folder).servers
        _end_all({name: one for name, one in running.items() if one.process.pid in ours})
        for child in self._children:
            child.wait(timeout=30)
        self._children.clear()

    def _bound(self, command: Sequence[str], log: Path, cwd: Path) -> int:
        if self._brief and command[0] == java():
            command = [command[0], "-XX:TieredStopAtLevel=1", *command[1:]]
        child = start_bound(command, log, cwd)
        self._children.append(child)
        return child.pid


@contextlib.contextmanager
def shared_server(folder: Path, server: str) -> Iterator[str]:
    """Address of a server that several processes use together (pytest-xdist's workers).

    The first one starts it in `folder` and, when done, waits for the others (for at most the time a
    test session may take) before it ends the server. Users that died are not waited for.
    """
    users = folder.absolute() / f"users-{server}"
    users.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as owned:
        with file_lock(folder / "shared.lock"):
            stack = LocalStack(folder, [server], brief=True)
            runs = any(s.name == server and s.state != "stopped" for s in status(folder))
            if not runs:
                owned.enter_context(stack)
            mine = _register(users)
        try:
            yield stack.address(server)
        finally:
            mine.unlink()
            if not runs:
                _end_unused(owned, folder, users)


def _end_unused(server: contextlib.ExitStack, folder: Path, users: Path) -> None:
    """Ends a server once nobody uses it. Who comes while it ends waits for that, and starts another one."""
    deadline = time.monotonic() + USED_AT_MOST_S
    while True:
        _wait_for(lambda: not _living(users), wait_s=deadline - time.monotonic())
        with file_lock(folder / "shared.lock"):
            if not _living(users) or time.monotonic() > deadline:
                server.close()
                return


def _register(users: Path) -> Path:
    me = process_id(os.getpid())
    assert me is not None
    mine = users / f"{me.pid}-{time.monotonic_ns()}.json"
    mine.write_bytes(msgspec.json.encode(me))
    return mine


def _living(users: Path) -> list[Path]:
    living = []
    for path in users.glob("*.json"):
        with contextlib.suppress(FileNotFoundError):  # it has just left
            if msgspec.json.decode(path.read_bytes(), type=ProcessId).alive:
                living.append(path)
    return living


def _wait_for(condition: Callable[[], bool], wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(POLL_S)


# --- starting -------------------------------------------------------------------------------------

Launcher = Callable[[Sequence[str], Path, Path], int]
"""(command, log, working folder) -> pid."""


def _start(folder: Path, names: Sequence[str], launch: Launcher, *, as_usual: bool) -> None:
    """All that do not run: first all are launched, then all are waited for, so that they start together."""
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder / LOCK):
        record = _read(folder)
        missing = [n for n in names if n not in record.servers or not record.servers[n].process.alive]
        try:
            # the slow starter last: the others come up while it is prepared
            for name in sorted(missing, key=lambda n: SERVERS[n].ready_timeout_s):
                _launch(folder, SERVERS[name], launch, as_usual)
            for name in names:
                start = partial(_launch, folder, SERVERS[name], launch, as_usual)
                _await_ready(folder, SERVERS[name], start if name in missing else None)
        except BaseException:
            servers = _read(folder).servers
            _end_all({n: servers[n] for n in missing if n in servers and servers[n].process.alive})
            raise


def _launch(folder: Path, spec: ServerSpec, launch: Launcher, as_usual: bool) -> None:
    home = folder / spec.name
    home.mkdir(parents=True, exist_ok=True)
    before = _read(folder).servers.get(spec.name)
    kept = () if before is None else before.ports
    wanted = spec.usual if as_usual else None
    ports = chosen_ports(kept, free_ports(spec.ports), wanted, port_is_free)
    prepare = spec.prepare_usual if as_usual and spec.prepare_usual is not None else spec.prepare
    command = prepare(home, ports)
    pid = launch(command, _log(folder, spec.name), home)
    process = process_id(pid) or ProcessId(pid, 0)  # 0: it has ended already; found out when waited for
    _write(
        folder, spec.name, ServerRecord(process=process, ports=ports, started_ms=time.time_ns() // 1_000_000)
    )


def chosen_ports(
    kept: Sequence[int], fresh: Sequence[int], usual: int | None, is_free: Callable[[int], bool]
) -> tuple[int, ...]:
    """The ports of a server that is started. Clients know the first, so that is the usual one if it can be
    had.

    Args:
        kept: Those of its last start, which stay where they are free.
        fresh: As many as it needs, all of them free.
        usual: Where everybody looks for it; None: nobody does.
        is_free: Whether a port is.
    """
    former = dict(enumerate(kept))
    if usual is not None and is_free(usual):
        former[0] = usual
    return tuple(
        former[place] if place in former and is_free(former[place]) else port
        for place, port in enumerate(fresh)
    )


def _await_ready(folder: Path, spec: ServerSpec, again: Callable[[], None] | None) -> None:
    """`again`: starts it on other ports, if one of those was taken meanwhile. None: it ran before."""
    for attempt in range(1, START_ATTEMPTS + 1):
        why = _wait_ready(folder, spec)
        if why is None:
            return
        tail = log_tail(folder, spec.name, 30) if _log(folder, spec.name).is_file() else ""
        taken = "Address already in use" in tail or "BindException" in tail
        if again is None or not taken or attempt == START_ATTEMPTS:
            lines = "\n  ".join(tail.splitlines())
            raise Unreachable(f"{spec.name} {why}; last lines of {_log(folder, spec.name)}:\n  {lines}")
        end(_read(folder).servers[spec.name].process)
        _log(folder, spec.name).unlink()
        again()


def _wait_ready(folder: Path, spec: ServerSpec) -> str | None:
    """None: it answers."""
    record = _read(folder).servers[spec.name]
    deadline = time.monotonic() + spec.ready_timeout_s
    while True:
        why = spec.serves(record.ports[0])
        if why is None:
            return None
        if not record.process.alive:
            return "ended while it started"
        if time.monotonic() > deadline:
            return f"did not answer within {spec.ready_timeout_s:.0f} s ({why})"
        time.sleep(POLL_S)


def _end_all(servers: Mapping[str, ServerRecord]) -> None:
    """Ends all at the same time; raises the first error."""
    with ThreadPoolExecutor(max_workers=len(servers) or 1) as pool:
        endings = [pool.submit(end, one.process, SERVERS[name].stop_s) for name, one in servers.items()]
    for ending in endings:
        ending.result()


# --- the record -----------------------------------------------------------------------------------


def _known(servers: Sequence[str]) -> tuple[str, ...]:
    for name in servers:
        if name not in SERVERS:
            raise ConfigError(f"there is no server {name!r} in the local stack; it has {', '.join(SERVERS)}")
    return tuple(dict.fromkeys(servers))


def _log(folder: Path, name: str) -> Path:
    return folder / name / f"{name}.log"


def _status_of(folder: Path, spec: ServerSpec, record: ServerRecord | None) -> ServerStatus:
    log = str(_log(folder, spec.name))
    if record is None or not record.process.alive:
        return ServerStatus(name=spec.name, state="stopped", address=None, pid=None, started_ms=None, log=log)
    return ServerStatus(
        name=spec.name,
        state="running" if spec.serves(record.ports[0]) is None else "starting",
        address=f"{HOST}:{record.ports[0]}",
        pid=record.process.pid,
        started_ms=record.started_ms,
        log=log,
    )


def _read(folder: Path) -> StackRecord:
    path = folder / RECORD
    try:
        return msgspec.json.decode(path.read_bytes(), type=StackRecord)
    except FileNotFoundError:
        return StackRecord()
    except UNDECODABLE as error:
        raise CorruptSnapshot(
            f"{path} is not a stack record ({error}); end its servers and remove it"
        ) from None


def _write(folder: Path, name: str, server: ServerRecord) -> None:
    servers = {**_read(folder).servers, name: server}
    fresh = folder / f"{RECORD}.new"
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(StackRecord(servers=servers))))
    fresh.replace(folder / RECORD)
