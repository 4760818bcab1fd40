"""A Kafka broker on loopback with users, who log in by SASL, may do what ACLs allow, and have quotas.

    with SecuredKafka(folder, {"reader": "a password"}) as kafka:
        kafka.address                            # for users: SASL_PLAINTEXT, PLAIN
        kafka.open_address                       # for the tests' own administration: may do everything
        kafka.allow("reader", "READ", topic="orders")

A topic, group or transactional id without a rule is open to every user. The first rule for it closes it to
the others.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from unistream.base.closing import Closing
from unistream.base.errors import Unreachable
from unistream.testing.devtools.jars import java, kafka_jars
from unistream.testing.devtools.kafka_tools import admin_client
from unistream.testing.devtools.process import ProcessId, end, free_ports, process_id, start_bound
from unistream.testing.devtools.servers import HOST, KAFKA, SERVERS, kafka_command

TOOL_S: Final = 240.0
POLL_S: Final = 0.1

# The broker's own requests come by the open listener, which knows nobody's name.
_PROPERTIES: Final = """
listeners=PLAINTEXT://{host}:{open},CONTROLLER://{host}:{controller},LOGIN://{host}:{login}
advertised.listeners=PLAINTEXT://{host}:{open},LOGIN://{host}:{login}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.login.plain.sasl.jaas.config={module} required {users};
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=true
"""
_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


class SecuredKafka(Closing):
    """Args:
    folder: For data and logs; made if absent.
    users: Passwords, by name.
    """

    def __init__(self, folder: Path, users: Mapping[str, str]) -> None:
        self._folder = folder.absolute()
        self._users = dict(users)
        self._open, self._controller, self._login = free_ports(3)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self._login}"

    @property
    def open_address(self) -> str:
        return f"{HOST}:{self._open}"

    def __enter__(self) -> Self:
        """Raises Unreachable: it does not serve in time; its log is named."""
        self._folder.mkdir(parents=True, exist_ok=True)
        more = _PROPERTIES.format(
            host=HOST,
            open=self._open,
            controller=self._controller,
            login=self._login,
            module=_MODULE,
            users=" ".join(f'user_{name}="{password}"' for name, password in self._users.items()),
        )
        command = kafka_command(self._folder, (self._open, self._controller), more)
        log = self._folder / "kafka.log"
        self._process = start_bound(command, log, self._folder)
        try:
            self._await_answer(self._process, log)
        except BaseException:
            self.close()
            raise
        return self

    def _await_answer(self, process: subprocess.Popen[bytes], log: Path) -> None:
        spec = SERVERS[KAFKA]
        deadline_s = time.monotonic() + spec.ready_timeout_s
        while (why_not := spec.serves(self._open)) is not None:
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise Unreachable(f"Kafka does not serve ({why_not}); its log is {log}")
            time.sleep(POLL_S)

    def close(self) -> None:
        """Ends it, and waits for it. Safe to repeat."""
        process, self._process = self._process, None
        if process is not None:
            end(process_id(process.pid) or ProcessId(process.pid, 0), SERVERS[KAFKA].stop_s)
            process.wait(timeout=TOOL_S)

    def allow(self, user: str, *operations: str, **resource: str) -> None:
        """A rule for one resource: ``topic="orders"``, ``group="g"`` or ``transactional_id="t"``. A name that
        ends with ``*`` stands for all that begin so."""
        from kafka.admin import ACL, ACLOperation, ACLPermissionType

        with admin_client(self.open_address) as admin:
            done = admin.create_acls(
                [
                    ACL(
                        f"User:{user}",
                        "*",
                        ACLOperation[operation],
                        ACLPermissionType.ALLOW,
                        _pattern(resource),
                    )
                    for operation in operations
                ]
            )
        assert not done["failed"], done

    def forbid(self, user: str, **resource: str) -> None:
        """Takes all rules of a user for a resource back; it stays closed if others have one."""
        from kafka.admin import ACLFilter, ACLOperation, ACLPermissionType

        with admin_client(self.open_address) as admin:
            pattern = _pattern(resource)
            [(_, found, error)] = admin.delete_acls(
                [ACLFilter(f"User:{user}", "*", ACLOperation.ANY, ACLPermissionType.ANY, pattern)]
            )
        assert found, error

    def limit(self, user: str, **bytes_per_s: int) -> None:
        """A quota: ``producer_byte_rate=…``, ``consumer_byte_rate=…``."""
        config = ",".join(f"{name}={rate}" for name, rate in bytes_per_s.items())
        self._tool(
            "kafka.admin.ConfigCommand",
            "--alter",
            "--add-config",
            config,
            "--entity-type",
            "users",
            "--entity-name",
            user,
        )

    def _tool(self, main: str, *words: str) -> None:
        flags = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", f"{kafka_jars()}/*"]
        done = subprocess.run(
            [java(), *flags, main, "--bootstrap-server", self.open_address, *words],
            capture_output=True,
            text=True,
            timeout=TOOL_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def _pattern(resource: Mapping[str, str]) -> Any:
    from kafka.admin import ACLResourcePatternType, ResourcePattern, ResourceType

    ((kind, name),) = resource.items()
    is_prefix = name.endswith("*") and name != "*"
    how = ACLResourcePatternType.PREFIXED if is_prefix else ACLResourcePatternType.LITERAL
    return ResourcePattern(ResourceType[kind.upper()], name[:-1] if is_prefix else name, how)
