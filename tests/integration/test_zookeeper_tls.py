"""Servers that are reached by TLS, and ask for the client's certificate."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.eventually import WAIT_S
from tests.integration.zookeeper_leaders import Recorder, contending, new_cluster, settings_of
from tests.support.servers.ensemble import ZooKeeperEnsemble
from unistream.base.errors import ConfigError, Unreachable
from unistream.ha.zookeeper import ZooKeeperElection, ZooKeeperRetrieval, ZooKeeperSettings
from unistream.ha.zookeeper.client import ZooKeeperClient, _TlsHandler, server_version
from unistream.port.ha import LeaderInfo

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
ANSWERS = 50


class Authority:
    """Makes certificates, as PEM files in `folder`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.certificate = folder / "ca.pem"
        key = ("-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key")
        self._openssl("req", "-x509", "-days", "2", "-subj", "/CN=test authority", *key, "-out", "ca.pem")

    def sign(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """A certificate for these hosts, and its key."""
        (self._folder / "names").write_text(f"subjectAltName={','.join(hosts)}\n" if hosts else "")
        key = ("-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key")
        self._openssl("req", "-subj", f"/CN={name}", *key, "-out", f"{name}.csr")
        by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        self._openssl("x509", "-req", "-in", f"{name}.csr", *by, "-out", f"{name}.pem")
        return self._folder / f"{name}.pem", self._folder / f"{name}.key"

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self._folder, check=True, capture_output=True, timeout=WAIT_S)


@dataclass(frozen=True)
class Secured:
    """Servers, and what their clients have."""

    address: str
    plain_address: str
    options: dict[str, str]
    identity: Path
    other_ca: str
    other_name: str

    def settings(self, address: str = "", **options: str | None) -> ZooKeeperSettings:
        """`options`: other ones below ``ssl.``; None: without."""
        given = {key: value for key, value in {**self.options, **options}.items() if value is not None}
        named = {f"client_ssl.{key}": value for key, value in given.items()}
        return settings_of(address or self.address, new_cluster(), client_connection_timeout="60 s", **named)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority, other = Authority(folder / "authority"), Authority(folder / "other")
    certificate, key = authority.sign("server", "IP:127.0.0.1")
    identity = folder / "identity.pem"
    identity.write_text(key.read_text() + certificate.read_text())
    certificate, key = authority.sign("client")
    options = {
        "enabled": "true",
        "ca": str(authority.certificate),
        "certificate": str(certificate),
        "key": str(key),
    }
    with ZooKeeperEnsemble(folder / "servers", 1, tls=(identity, authority.certificate)) as servers:
        port = servers.secure_address.rpartition(":")[2]
        yield Secured(
            address=servers.secure_address,
            plain_address=servers.address,
            options=options,
            identity=identity,
            other_ca=str(other.certificate),
            other_name=f"localhost:{port}",
        )


def test_many_answers_at_once_are_all_read(secured: Secured) -> None:
    with ZooKeeperClient(secured.settings()) as client:
        client.open()
        assert server_version(client._described()) is not None
        for _ in range(ANSWERS):
            assert client.stats(["/zookeeper"] * 50).count(None) == 0


def test_what_was_decrypted_with_the_answer_before_is_not_waited_for(secured: Secured) -> None:
    """One record of TLS holds two answers: nothing more comes from the network."""
    tls = secured.settings().tls
    assert tls is not None
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(secured.identity)
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:

        def answer() -> None:
            plain, _ = listening.accept()
            with own.wrap_socket(plain, server_side=True) as server:
                server.sendall(b"12")
                server.recv(1)  # the client has read both

        answered = pool.submit(answer)
        handler = _TlsHandler(tls.context())
        with handler.create_connection(listening.getsockname(), "127.0.0.1", 10.0) as client:
            for expected in (b"1", b"2"):
                assert handler.select([client], [], [], 10.0)[0] == [client]
                assert client.recv(1) == expected
            client.sendall(b"0")
        answered.result(WAIT_S)


def test_a_master_leads_and_a_client_finds_it(secured: Secured) -> None:
    settings = secured.settings()
    with contending(settings) as (election, leader), ZooKeeperRetrieval(settings) as retrieval:
        leader.expect("granted")
        store = leader.granted_store
        store.create("jobs/1/job", b"x" * 100_000)
        assert list(store.children("jobs")) == ["1"]
        election.publish(LeaderInfo(epoch=store.epoch, cluster="a"))
        found = retrieval.leader(WAIT_S)
        assert found is not None
        assert found.epoch == store.epoch
        assert leader.words == ["granted"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        pytest.param({"ca": "other"}, "certificate verify failed", id="of another authority"),
        pytest.param({"ca": None}, "certificate verify failed", id="of an unknown authority"),
    ],
)
def test_a_server_that_is_not_trusted_is_refused(
    secured: Secured, options: dict[str, str | None], why: str
) -> None:
    chosen = {key: secured.other_ca if value == "other" else value for key, value in options.items()}
    said = refusal(secured.settings(**chosen))
    assert f"ZooKeeper at {secured.address} cannot be reached by TLS: " in said
    assert why in said
    assert "correct high-availability.zookeeper.client.ssl.ca" in said


def test_the_certificate_names_the_host_unless_that_is_not_checked(secured: Secured) -> None:
    said = refusal(secured.settings(secured.other_name))
    assert "Hostname mismatch" in said
    with contending(secured.settings(secured.other_name, **{"verify-hostname": "false"})) as (_, leader):
        leader.expect("granted")


def test_a_client_without_a_certificate_is_not_served(secured: Secured) -> None:
    said = refusal(secured.settings(certificate=None, key=None))
    assert f"ZooKeeper at {secured.address}" in said
    assert "certificate" in said or "does not answer" in said, "as the server says it"


def test_a_port_without_tls_is_named(secured: Secured) -> None:
    assert secured.plain_address in refusal(secured.settings(secured.plain_address))


def refusal(settings: ZooKeeperSettings) -> str:
    recorder, settings = Recorder(), replace(settings, request_s=5.0)  # for so long it tries again
    with ZooKeeperElection(settings) as election, pytest.raises((ConfigError, Unreachable)) as caught:
        election.start(recorder)
    assert recorder.words == []
    assert "\n" not in str(caught.value)
    return str(caught.value)
