"""Several ZooKeeper servers that form one service, on loopback; each can be killed, frozen and started again.

with ZooKeeperEnsemble(folder) as ensemble:      # ends with this thread, whatever happens
    ensemble.address                             # 127.0.0.1:<port>,127.0.0.1:<port>,127.0.0.1:<port>
    ensemble.kill(ensemble.leading())
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.servers.server_group import ServerGroup
from unistream.base.errors import Unreachable
from unistream.testing.devtools.process import ProcessId, end, free_ports, process_id, start_bound
from unistream.testing.devtools.servers import (
    HOST,
    ZOOKEEPER,
    java_command,
    zookeeper_classpath,
    zookeeper_says,
)

MEMBERS: Final = 3
START_S: Final = 240.0
POLL_S: Final = 0.05
TICK_MS: Final = 500
_PROPERTIES: Final = """\
dataDir={data}
clientPort={client}
clientPortAddress={host}
tickTime={tick_ms}
initLimit=20
syncLimit=6
minSessionTimeout=1000
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=ruok,srvr
{members}
"""
_ONLY_SASL: Final = """
authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
enforce.auth.enabled=true
enforce.auth.schemes=sasl
"""
_TLS: Final = """
secureClientPort={port}
secureClientPortAddress={host}
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location={identity}
ssl.keyStore.type=PEM
ssl.trustStore.location={ca}
ssl.trustStore.type=PEM
ssl.clientAuth=need
"""


class Place(NamedTuple):
    """Where a server runs. `wrapper`: the beginning of its command."""

    address: str
    wrapper: Sequence[str] = ()


LOOPBACK: Final = Place(HOST)


class ZooKeeperEnsemble(ServerGroup):
    """Numbers of members begin with 0.

    Args:
        folder: For data and logs; made if absent.
        members: A majority of them has to run.
        users: Passwords of those who may connect, by SASL (DIGEST-MD5), by name; none: everybody may.
        tls: Members also listen by TLS (`secure_address`), with the key and certificate in the first of these
            PEM files, for clients whose certificate is of the authority in the second; None: they do not.
        places: Where each member runs, on a host of its own; none: on loopback. Who starts them and asks for
            modes is on their network.
    """

    def __init__(
        self,
        folder: Path,
        members: int = MEMBERS,
        users: Mapping[str, str] | None = None,
        tls: tuple[Path, Path] | None = None,
        places: Sequence[Place] = (),
    ) -> None:
        super().__init__()
        self._places = [*places] or [LOOPBACK] * members
        members = len(self._places)
        self.folder: Final = folder.absolute()
        self._users = dict(users or {})
        self._tls = tls
        ports = free_ports(4 * members)
        self._secure_ports: Final = tuple(ports[3 * members :])
        self.ports: Final = tuple(ports[:members])
        self._peers = [
            f"server.{n + 1}={place.address}:{ports[members + n]}:{ports[2 * members + n]}"
            for n, place in enumerate(self._places)
        ]

    @property
    def address(self) -> str:
        """The address for clients: all members."""
        return ",".join(
            f"{place.address}:{port}" for place, port in zip(self._places, self.ports, strict=True)
        )

    @property
    def secure_address(self) -> str:
        """The address for clients that use TLS: all members."""
        return ",".join(f"{HOST}:{port}" for port in self._secure_ports)

    @property
    def everybody(self) -> range:
        return range(len(self.ports))

    def start(self, *members: int) -> None:
        """Starts those members that do not run; returns when all of them serve.

        Raises:
            Unreachable: one of them does not, after START_S; its log is named.
        """
        for member in members:
            if member not in self._running:
                self._running[member] = self._start(member)
        for member in members:
            self._wait_until_it_serves(member)

    def forget(self, *members: int) -> None:
        """Waits for members that were killed with their host, for `start`."""
        for member in members:
            self._running.pop(member).wait(timeout=START_S)

    def lose_quorum(self) -> tuple[int, ...]:
        """Kills as many as it takes; returns who that was, for `start`."""
        majority = tuple(self.everybody)[: len(self.ports) // 2 + 1]
        self.kill(*majority)
        return majority

    def mode(self, member: int) -> str | None:
        """Leader or follower; None: it does not serve."""
        said = zookeeper_says(self.ports[member], b"srvr", self._places[member].address)
        for line in said.decode(errors="replace").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return None

    def leading(self) -> int:
        """Who leads the ensemble."""
        for member in self.everybody:
            if self.mode(member) == "leader":
                return member
        raise Unreachable(f"no member of the ensemble in {self.folder} leads it")

    def close(self) -> None:
        """Ends all, and waits for it. Safe to repeat."""
        while self._running:
            _, child = self._running.popitem()
            with suppress(ProcessLookupError):
                child.send_signal(signal.SIGCONT)
            found = process_id(child.pid)
            end(found or ProcessId(child.pid, 0))
            child.wait(timeout=START_S)

    def _start(self, member: int) -> subprocess.Popen[bytes]:
        home = self.folder / str(member)
        data = home / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(f"{member + 1}\n", encoding="utf-8")
        config = home / "zoo.cfg"
        config.write_text(
            _PROPERTIES.format(
                data=data,
                client=self.ports[member],
                host=self._places[member].address,
                tick_ms=TICK_MS,
                members="\n".join(self._peers if len(self._peers) > 1 else ()),
            )
            + (_ONLY_SASL if self._users else "")
            + self._secured(member),
            encoding="utf-8",
        )
        main = ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
        options = [
            "-XX:TieredStopAtLevel=1",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-cp",
            zookeeper_classpath(),
            *self._login(home),
        ]
        command = [*self._places[member].wrapper, *java_command(home, ZOOKEEPER), *options, *main]
        return start_bound(command, self._log(member), home)

    def _secured(self, member: int) -> str:
        if self._tls is None:
            return ""
        identity, ca = self._tls
        return _TLS.format(port=self._secure_ports[member], host=HOST, identity=identity, ca=ca)

    def _login(self, home: Path) -> list[str]:
        """Options of Java by which the server knows its users."""
        if not self._users:
            return []
        jaas = home / "jaas.conf"
        users = " ".join(f'user_{name}="{password}"' for name, password in self._users.items())
        module = "org.apache.zookeeper.server.auth.DigestLoginModule"
        jaas.write_text(f"Server {{ {module} required {users}; }};\n", encoding="utf-8")
        return [f"-Djava.security.auth.login.config={jaas}"]

    def _log(self, member: int) -> Path:
        return self.folder / str(member) / "zookeeper.log"

    def _wait_until_it_serves(self, member: int) -> None:
        deadline_s = time.monotonic() + START_S
        while self.mode(member) is None:
            ended = self._running[member].poll() is not None
            if ended or time.monotonic() > deadline_s:
                raise Unreachable(
                    f"ZooKeeper: member {member} does not serve; its log is {self._log(member)}"
                )
            time.sleep(POLL_S)
