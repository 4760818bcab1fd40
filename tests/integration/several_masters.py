"""What tests of several masters share: their processes, and what is true of them.

Masters     `unistream cluster start` several times, which is one cluster
await_job   the state of a job, whoever leads
Takeover    measures how long one takes
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.eventually import WAIT_S, eventually
from tests.integration.copied_topic import Flow
from tests.integration.zookeeper_leaders import new_cluster, plain_client
from tests.integration.zookeeper_log import changes, durable_writes
from tests.walked import walked
from unistream.base.config import Configuration
from unistream.base.errors import OutcomeUnknown, UnistreamError, Unreachable
from unistream.base.ids import JobId
from unistream.client.remote.address import elected_address
from unistream.client.remote.rest_client import Poll, RestClient
from unistream.model.job_info import JobInfo
from unistream.model.submission import SubmitRequest

OF_HA_MATRIX = pytest.mark.skipif(os.environ.get("UNISTREAM_HA_MATRIX") != "1", reason="long: make ha-matrix")
ROOT = "/unistream-test"
SESSION_S = 3.0


# --- masters ------------------------------------------------------------------------------------------


class Program:
    """`unistream …` in a process of its own; its output is in files, so that it never waits for a reader."""

    def __init__(
        self,
        folder: Path,
        name: str,
        words: Sequence[str],
        env: Mapping[str, str],
        wrapper: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*wrapper, sys.executable, "-m", "unistream.cli.main", *words],
                cwd=folder,
                env={**os.environ, "UNISTREAM_HOME": str(folder / "home"), **env},
                stdout=out,
                stderr=err,
            )
        self._family: dict[int, psutil.Process] = {}

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it has printed: a JSON object on each line."""
        return [json.loads(line) for line in self._out.read_text().split("\n")[:-1]]

    @property
    def err(self) -> str:
        return self._err.read_text()

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    def family(self) -> list[psutil.Process]:
        """All processes that it has started so far."""
        if self.lives:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                self._family[child.pid] = child
        return list(self._family.values())

    def send(self, number: int) -> None:
        self.family()
        self.process.send_signal(number)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Its exit code."""
        self.send(number)
        return self.wait()

    def wait(self) -> int:
        """Until it has ended by itself: its exit code."""
        return self.process.wait(WAIT_S)

    def assert_nothing_is_left(self) -> None:
        _, alive = psutil.wait_procs(self.family(), timeout=WAIT_S)
        assert not alive, f"left: {alive}"

    def clear(self) -> None:
        """Kills it and what it has left."""
        self.family()
        if self.lives:
            self.process.kill()
            self.process.wait(WAIT_S)
        for child in self.family():
            with suppress(psutil.NoSuchProcess):
                child.kill()


class Master(Program):
    """One of the masters of a cluster."""

    def await_line(self) -> dict[str, Any]:
        """The first line, which says who it is."""
        eventually(lambda: bool(self.lines) or not self.lives, f"{self.name} starts", WAIT_S)
        assert self.lines, self.err
        return self.lines[0]

    @property
    def id(self) -> str:
        return str(self.await_line()["cluster"])

    @property
    def urls(self) -> list[str]:
        """Of its REST API, one for each time that it has led."""
        return [line["url"] for line in self.lines if "url" in line]

    @property
    def serves_at(self) -> str:
        """Where it answers, whoever leads."""
        return str(self.await_line()["serves_at"])


class Masters:
    """One cluster.

    Args:
        folder: Of all that it has.
        quorum: How ZooKeeper is reached.
        options: More of their options.
        disk: Each master has its storage on a disk of its own of this size, such as "8m"; None: on this one.
    """

    def __init__(
        self,
        folder: Path,
        quorum: str,
        *,
        target: str = "local",
        session_s: float = SESSION_S,
        options: Mapping[str, str] | None = None,
        disk: str | None = None,
    ) -> None:
        self.folder = folder
        self.quorum = quorum
        self.id = new_cluster()
        self.all: list[Program] = []
        self._target = target
        mount = f'mount -t tmpfs -o size={disk} none "{folder}/ha" && exec "$@"'
        self._wrapper = () if disk is None else ("unshare", "-m", "sh", "-c", mount, "sh")
        self.options = {
            "high-availability.type": "zookeeper",
            "high-availability.zookeeper.quorum": quorum,
            "high-availability.zookeeper.path.root": ROOT,
            "high-availability.zookeeper.client.session-timeout": f"{session_s * 1000:.0f} ms",
            "high-availability.zookeeper.client.connection-timeout": "5 s",
            "high-availability.storageDir": (folder / "ha").as_uri(),
            "high-availability.cluster-id": self.id,
            **(options or {}),
        }
        self.session_s = session_s

    @property
    def znode(self) -> str:
        """Its folder in ZooKeeper."""
        return f"{self.options['high-availability.zookeeper.path.root']}/{self.id}"

    def start(self, name: str, env: Mapping[str, str] | None = None, **options: str | None) -> Master:
        """A master with a folder of its own. `options`: other ones, with ``_`` for ``.``; None: without."""
        master = self._start(name, env or {}, options)
        master.await_line()
        return master

    def _start(self, name: str, env: Mapping[str, str], options: Mapping[str, str | None]) -> Master:
        changed = {key.replace("_", "."): value for key, value in options.items()}
        workdir = changed.pop("workdir", None) or str(self.folder / f"work-{name}")
        words = ["cluster", "start", "-t", self._target, "--json", "--workdir", workdir]
        given = {key: value for key, value in {**self.options, **changed}.items() if value is not None}
        master = Master(self.folder, name, [*words, *_defined(given)], env, self._wrapper)
        self.all.append(master)
        return master

    def refused(self, name: str, **options: str | None) -> str:
        """What a master says that ends by itself, as a user's mistake."""
        master = self._start(name, {}, options)
        assert master.wait() == 2, master.err
        return _sentence(master.err)

    def command(self, name: str, *words: str, defines: Mapping[str, str] | None = None) -> Program:
        """Another program of this cluster."""
        program = Program(self.folder, name, [*words, *_defined(defines or {})], {})
        self.all.append(program)
        return program

    def pair(self, **options: str) -> tuple[Master, Master]:
        """A leader, and a standby. `options`: other ones of the leader."""
        first = self.start("first", **options)
        self.await_leader(first)
        return first, self.start("second")

    @contextmanager
    def kept_alive(self, count: int, env: Mapping[str, str]) -> Iterator[list[Master]]:
        """So many masters; each that has killed itself is started again. The list: those that have."""
        dead: list[Master] = []
        ends = threading.Event()

        def keep(living: list[Master]) -> None:
            while not ends.wait(0.05):
                for place, master in enumerate(living):
                    if not master.lives:
                        dead.append(master)
                        living[place] = self._start(f"again-{len(dead)}", env, {})

        keeper = threading.Thread(
            target=keep, args=([self.start(f"master-{n}", env) for n in range(count)],), daemon=True
        )
        keeper.start()
        try:
            yield dead
        finally:
            ends.set()
            keeper.join(WAIT_S)

    def _kazoo(self) -> AbstractContextManager[KazooClient]:
        """For looks from outside."""
        given = self.options.get("high-availability.zookeeper.client.authorization", "")
        scheme, _, credentials = given.partition(":")
        return plain_client(self.quorum, auth_data=[(scheme, credentials)] if scheme else None)

    # --- its leader -------------------------------------------------------------------------------

    def client(self, timeout_s: float = WAIT_S) -> RestClient:
        """Finds the leader by ZooKeeper, as users' commands do."""
        return RestClient(elected_address(Configuration(self.options)), timeout_s=timeout_s)

    def leads(self, master: Master) -> bool:
        """It is the one that clients find."""
        return self._leader().get("cluster") == master.id

    def _leader(self) -> dict[str, Any]:
        """What clients find; empty: nobody leads."""
        with self._kazoo() as kazoo:
            try:
                found, _ = kazoo.get(f"{self.znode}/leader")
            except NoNodeError:
                return {}
            return dict(json.loads(found))

    def await_leader(self, master: Master) -> float:
        """Returns when it leads, and has said where: the seconds that took."""

        def leads() -> bool:
            leader = self._leader()
            return leader.get("cluster") == master.id and master.urls[-1:] == [leader["rest_url"]]

        return eventually(leads, f"{master.name} leads: {master.err}", WAIT_S, 0.1)

    @property
    def contenders(self) -> int:
        """How many take part in the election."""
        with self._kazoo() as kazoo:
            return len(kazoo.get_children(f"{self.znode}/election"))

    def await_contenders(self, count: int) -> None:
        """Until so many take part."""
        eventually(lambda: self.contenders == count, f"{count} take part in the election", WAIT_S, 0.1)

    def stored(self) -> dict[str, tuple[bytes, int]]:
        """All that is below its folder but for the places in the election: value and last transaction."""
        found: dict[str, tuple[bytes, int]] = {}
        with self._kazoo() as kazoo:
            todo = [self.znode]
            while todo:
                path = todo.pop()
                with suppress(NoNodeError):  # it goes while they are looked at
                    value, stat = kazoo.get(path)
                    names = kazoo.get_children(path) if path != f"{self.znode}/election" else []
                    found[path.removeprefix(self.znode)] = (value, stat.mzxid)
                    todo += [f"{path}/{name}" for name in names]
        return found

    def assert_each_write_was_the_leaders(self, data: Path, leaders: int = 1) -> list[int]:
        """By the logs of ZooKeeper's servers in `data`: every durable write was fenced by the node that was
        first, and epochs only grow. Returns those of all leaders that have written, oldest first: `leaders`
        of them, or more, since a session may end where the machine is busy."""
        written = durable_writes(changes(data), self.znode)
        order = [write.epoch for write in written]
        assert order == sorted(order), "an older leader has written behind a newer one"
        assert len(set(order)) >= leaders
        return sorted(set(order))


def _defined(options: Mapping[str, str]) -> list[str]:
    return [word for key, value in options.items() for word in ("-D", f"{key}={value}")]


def _sentence(text: str) -> str:
    lines = text.strip().splitlines()
    assert len(lines) == 1, text
    return lines[0]


@contextmanager
def masters_in(folder: Path, quorum: str, **how: Any) -> Iterator[Masters]:
    """A cluster whose processes are killed at the end, and what they have started."""
    cluster = Masters(folder, quorum, **how)
    try:
        yield cluster
    finally:
        for program in cluster.all:
            program.clear()


# --- a job --------------------------------------------------------------------------------------------


def is_stopped(program: Program) -> bool:
    """By SIGSTOP."""
    return bool(psutil.Process(program.process.pid).status() == psutil.STATUS_STOPPED)


def files_in(folder: Path) -> dict[str, bytes]:
    """All below it."""
    return {str(path): path.read_bytes() for path in walked(folder) if path.is_file()}


def submitted(client: RestClient, request: SubmitRequest) -> JobId:
    """As a user does it: again under the same id, when nobody could say whether the job was accepted."""
    while True:
        try:
            return client.submit(request).job_id
        except (Unreachable, OutcomeUnknown) as error:
            print(f"\nsubmitted again: {error}")


def is_running(info: JobInfo) -> bool:
    tasks = {task.state for task in info.subtasks}
    return info.state == "RUNNING" and tasks == {"RUNNING"}


def await_job(client: RestClient, job: JobId, condition: Callable[[JobInfo], bool], what: str) -> JobInfo:
    """The state of the job as soon as it fulfils `condition`, through all changes of the leader."""
    last: JobInfo | UnistreamError | None = None
    poll = Poll(WAIT_S)
    while poll.next():
        try:
            last = client.info(job, timeout_s=WAIT_S)
        except UnistreamError as error:
            last = error
            continue
        if condition(last):
            return last
    raise AssertionError(f"{what}: not after {WAIT_S:.0f} s: {last!r}")


class Takeover:
    """Measures one, from its construction on; says it at the end."""

    def __init__(self, cluster: Masters, flow: Flow, what: str) -> None:
        self._cluster, self._flow, self._what = cluster, flow, what
        self._began_s = time.monotonic()
        self._version = flow.version

    def of(self, master: Master, job: JobId) -> None:
        """Returns when `master` leads, has the job, and a checkpoint of it has been committed."""
        self._cluster.await_leader(master)
        leads_s = time.monotonic() - self._began_s
        with RestClient(master.urls[-1]) as client:
            await_job(client, job, is_running, "it runs")
        runs_s = time.monotonic() - self._began_s
        self._flow.await_commits(1)
        commits_s = time.monotonic() - self._began_s
        print(
            f"\ntakeover, {self._what}: sessions of {self._cluster.session_s:g} s; another one leads after "
            f"{leads_s:.1f} s, the job runs after {runs_s:.1f} s and has committed after {commits_s:.1f} s"
        )
