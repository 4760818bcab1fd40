"""Hosts that are network namespaces of this machine, joined by a switch in one of its own. Linux, as root.

with Hosts(folder, "a", "b") as hosts:      # all is removed at the end, and what they run is killed
    with hosts.inside():                    # this thread, and those that it starts, reach all hosts
        hosts["a"].run("hostname")          # host-a
        hosts["a"].address, hosts["a"].ipv6 # 198.18.0.11, fd00:5eed::11: no network has these
        hosts["b"].cut()                    # ... heal(); hosts.part("a", "b") ... hosts.mend("a", "b")

The disk is the same on all of them, but `OWN_TMP`, where temporary files are. The network of the machine is
not touched. What a test that was killed has left is removed by the next one.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, Self

from tests.support.servers.slow_cable import End, SlowCable
from unistream.base.closing import Closing
from unistream.base.errors import ConfigError, Unreachable
from unistream.testing.devtools.process import ProcessId, process_id, wait_until_ended

PREFIX: Final = "unistream-host"
SWITCH: Final = "switch"
OWN_TMP: Final = "/mnt"  # there everywhere, and short enough for the path of a socket
CLONE_NEWNET: Final = 0x40000000  # <linux/sched.h>
GATEWAY, GATEWAY6 = "198.18.0.1", "fd00:5eed::1"
CARD: Final = "eth0"
COMMAND_S: Final = 120.0
KILLED_S: Final = 60.0
NAMESPACES: Final = Path("/run/netns")

# Each program has the name of its host, the names of all, and temporary files that no other host has.
_BECOME: Final = (
    'hostname "$1" && mount --bind "$2/names" /etc/hosts && mount --bind "$2/resolver" /etc/resolv.conf '
    f'&& mount --bind "$2/$1" {OWN_TMP} && shift 2 && exec "$@"'
)
_numbers: Final = itertools.count()


class Host:
    """One of `Hosts`.

    Attributes:
        name: As other hosts know it, and `gethostname` says.
        address: Of IPv4.
        ipv6: Its other address.
    """

    def __init__(self, name: str, number: int, namespace: str, switch: str, folder: Path) -> None:
        self.name: Final = name
        self.address: Final = f"198.18.0.{10 + number}"
        self.ipv6: Final = f"fd00:5eed::{10 + number}"
        self.namespace: Final = namespace
        self._port: Final = f"port{number}"
        self._switch: Final = switch
        self._folder: Final = folder
        self._mac: Final = f"02:00:c6:12:00:{number:02x}"
        self._started: list[subprocess.Popen[bytes]] = []
        self._cable: SlowCable | None = None

    def join(self) -> None:
        """Makes it, with a link to the switch."""
        (self._folder / self.name).mkdir(exist_ok=True)
        _ip("netns", "add", self.namespace)
        _ip("-n", self.namespace, "link", "set", "lo", "up")
        self._plug()

    def _plug(self) -> None:
        link = ("type", "veth", "peer", "name", CARD, "netns", self.namespace)
        _ip("-n", self._switch, "link", "add", "name", self._port, *link)
        self._configure()

    def _configure(self) -> None:
        """Both ends of its link, which are there."""
        _ip("-n", self._switch, "link", "set", self._port, "master", SWITCH, "up")
        own = ("-n", self.namespace)
        _ip(*own, "link", "set", CARD, "address", self._mac)
        _ip(*own, "address", "add", f"{self.address}/24", "dev", CARD)
        _ip(*own, "-6", "address", "add", f"{self.ipv6}/64", "dev", CARD, "nodad")
        _ip(*own, "link", "set", CARD, "up")
        _ip(*own, "route", "add", "default", "via", GATEWAY)  # which forwards nothing
        _ip(*own, "-6", "route", "add", "default", "via", GATEWAY6)

    @property
    def wrapper(self) -> list[str]:
        """The beginning of a command of this machine that is to run there. It is killed when the thread that
        has started it ends."""
        there = ["nsenter", f"--net={NAMESPACES / self.namespace}", "unshare", "--uts", "--mount"]
        bound = ["setpriv", "--pdeathsig", "KILL"]
        shell = ["sh", "-c", _BECOME, "sh", self.name, str(self._folder)]
        return [*there, *shell, "env", f"TMPDIR={OWN_TMP}", *bound]

    def start(
        self, log: Path, *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """A program whose output is in `log`."""
        with log.open("ab") as file:
            program = subprocess.Popen(
                [*self.wrapper, *words],
                env={**os.environ, **(env or {})},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        self._started.append(program)
        return program

    def run(self, *words: str, env: Mapping[str, str] | None = None, code: int | None = 0) -> str:
        """What a program has printed that ends by itself: its output, or its errors if `code`, with which it
        ends, is another one than 0; None: any code, and all of both."""
        done = subprocess.run(
            [*self.wrapper, *words],
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_S * 2,
        )
        said = done.stdout + done.stderr
        assert code is None or done.returncode == code, f"{words}: code {done.returncode}: {said}"
        return said if code is None else done.stderr if code else done.stdout

    def python(self, program: str, *arguments: str, code: int | None = 0) -> str:
        """As `run`, of a program in Python."""
        return self.run(sys.executable, "-c", program, *arguments, code=code)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """The calling thread is in its network, and are threads and processes that it starts meanwhile. Not
        for libraries that keep their threads (deltalake, pyarrow): those would stay there."""
        with _inside(self.namespace):
            yield

    def listens(self, port: int) -> bool:
        """Whether somebody accepts connections there."""
        with self.inside(), socket.socket() as probe:
            probe.settimeout(COMMAND_S)
            return probe.connect_ex((self.address, port)) == 0

    def processes(self) -> list[ProcessId]:
        """All that run there."""
        return _processes(self.namespace)

    def kill(self) -> None:
        """Kills all that runs there."""
        _kill(self.namespace)
        for program in self._started:
            program.wait(KILLED_S)

    def cut(self) -> None:
        """Takes away its link: nobody says that it is gone."""
        _ip("-n", self._switch, "link", "set", self._port, "down")

    def heal(self) -> None:
        """Gives it back its link."""
        _ip("-n", self._switch, "link", "set", self._port, "up")

    def slow(self, delay_ms: int, loss_percent: float) -> None:
        """What it sends, and what it gets, comes later, or not at all. Connections stay."""
        _ip("-n", self._switch, "link", "del", self._port)
        here, there = End(CARD, self.inside), End(self._port, lambda: _inside(self._switch))
        self._cable = SlowCable(here, there, delay_s=delay_ms / 1000, loss=loss_percent / 100, seed=7)
        self._configure()
        self._cable.start()

    def fast(self) -> int:
        """As before `slow`: how many frames were lost meanwhile."""
        cable, self._cable = self._cable, None
        if cable is None:
            return 0
        cable.close()
        self._plug()
        return cable.lost

    def close(self) -> None:
        """Kills all that runs there, and removes it."""
        if self._cable is not None:
            self._cable.close()
        self.kill()
        _remove(self.namespace)

    def routes(self, change: str, other: Host) -> None:
        """`change`: add or del: what it sends to another one is lost."""
        _ip("-n", self.namespace, "route", change, "blackhole", other.address)
        _ip("-n", self.namespace, "-6", "route", change, "blackhole", other.ipv6)


class Hosts(Closing):
    """See the module.

    Args:
        folder: For files that they need; made if absent.
        names: Of the hosts: "a" is reached as ``host-a``, and by IPv6 alone as ``six-a``.
    """

    def __init__(self, folder: Path, *names: str) -> None:
        self._folder: Final = folder.absolute()
        me = process_id(os.getpid())
        assert me is not None, "this process runs"
        own = f"{PREFIX}-{me.pid}-{me.start_ticks}-{next(_numbers)}"
        self.switch: Final = f"{own}-{SWITCH}"
        self._hosts: Final = {
            name: Host(f"host-{name}", number, f"{own}-{name}", self.switch, self._folder)
            for number, name in enumerate(names, start=1)
        }

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts.values())

    def __enter__(self) -> Self:
        why_not = missing()
        if why_not:
            raise ConfigError(why_not)
        remove_stale()
        self._folder.mkdir(parents=True, exist_ok=True)
        own = ["127.0.0.1 localhost", "::1 localhost"]
        named = [f"{host.address} {host.name}\n{host.ipv6} {_six(host.name)}" for host in self]
        (self._folder / "names").write_text("\n".join([*own, *named, ""]), encoding="utf-8")
        (self._folder / "resolver").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        try:
            _ip("netns", "add", self.switch)
            at = ("-n", self.switch)
            _ip(*at, "link", "add", "name", SWITCH, "type", "bridge", "forward_delay", "0")
            _ip(*at, "address", "add", f"{GATEWAY}/24", "dev", SWITCH)
            _ip(*at, "-6", "address", "add", f"{GATEWAY6}/64", "dev", SWITCH, "nodad")
            _ip(*at, "link", "set", "lo", "up")
            _ip(*at, "link", "set", SWITCH, "up")
            for host in self:
                host.join()
        except BaseException:
            self.close()
            raise
        return self

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """The calling thread is at the switch, and are threads and processes that it starts meanwhile."""
        with _inside(self.switch):
            yield

    def part(self, one: str, other: str) -> None:
        """These two reach each other no more; all others do."""
        self._change("add", one, other)

    def mend(self, one: str, other: str) -> None:
        """They reach each other again."""
        self._change("del", one, other)

    def _change(self, change: str, one: str, other: str) -> None:
        self[one].routes(change, self[other])
        self[other].routes(change, self[one])

    def close(self) -> None:
        """Kills all that they run, and removes them. Safe to repeat."""
        for host in self:
            host.close()
        _remove(self.switch)


def _six(name: str) -> str:
    return name.replace("host-", "six-", 1)


@cache
def missing() -> str:
    """Why there can be no hosts here; "": there can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "hosts are network namespaces of Linux, which root makes"
    probe = f"{PREFIX}-{os.getpid()}-0-probe"
    tries = [
        ("ip", "netns", "add", probe),
        ("ip", "-n", probe, "link", "add", "name", "probe0", "type", "bridge"),
        ("ip", "-n", probe, "link", "add", "name", "probe1", "type", "veth", "peer", "name", "probe2"),
        ("ip", "-n", probe, "-6", "address", "add", "fd00:5eed::1/64", "dev", "probe1"),
        ("nsenter", f"--net={NAMESPACES / probe}", "unshare", "--uts", "--mount", "true"),
    ]
    try:
        for words in tries:
            done = _called(*words)
            if done.returncode != 0:
                return f"no network namespaces here: {' '.join(words)}: {done.stderr.strip()}"
    except OSError as error:
        return f"no network namespaces here: {error}"
    finally:
        with contextlib.suppress(OSError):
            _called("ip", "netns", "del", probe)
    return ""


def remove_stale() -> None:
    """Removes the hosts of processes that have ended without removing them."""
    names = [path.name for path in NAMESPACES.glob(f"{PREFIX}-*")] if NAMESPACES.is_dir() else []
    for name in names:
        pid, ticks = (int(part) for part in name.removeprefix(f"{PREFIX}-").split("-")[:2])
        owner = process_id(pid)
        if owner is None or (ticks and owner.start_ticks != ticks):
            _remove(name)


def _remove(namespace: str) -> None:
    if (NAMESPACES / namespace).exists():
        _kill(namespace)
        _called("ip", "netns", "del", namespace)


def _processes(namespace: str) -> list[ProcessId]:
    found = [process_id(int(pid)) for pid in _called("ip", "netns", "pids", namespace).stdout.split()]
    return [one for one in found if one is not None and one.pid != os.getpid()]


def _kill(namespace: str) -> None:
    """Kills all processes of a namespace, and those that they start meanwhile."""
    until = time.monotonic() + KILLED_S
    while running := _processes(namespace):
        for one in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
        for one in running:
            wait_until_ended(one, KILLED_S)
        if time.monotonic() > until:
            raise Unreachable(f"{len(running)} processes of {namespace} do not end")


@contextlib.contextmanager
def _inside(namespace: str) -> Iterator[None]:
    with Path("/proc/thread-self/ns/net").open("rb") as before, (NAMESPACES / namespace).open("rb") as there:
        _enter(there.fileno())
        try:
            yield
        finally:
            _enter(before.fileno())


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*words: str) -> None:
    done = _called("ip", *words)
    if done.returncode != 0:
        raise ConfigError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def _called(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=COMMAND_S, stdin=subprocess.DEVNULL
    )
