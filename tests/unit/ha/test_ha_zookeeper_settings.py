"""Options of ZooKeeper, and what of them cannot work."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.base.secrets import HIDDEN, redacted
from unistream.ha.names import check_value, components
from unistream.ha.zookeeper import ZooKeeperSettings, zookeeper_settings
from unistream.ha.zookeeper.client import server_version

AUTHORIZATION = "high-availability.zookeeper.client.authorization"


def settings(**options: str) -> ZooKeeperSettings:
    names = {"quorum": "h1,h2", **{key.replace("_", ".", 1): value for key, value in options.items()}}
    return zookeeper_settings(
        Configuration({f"high-availability.zookeeper.{name}": value for name, value in names.items()})
    )


def test_defaults_are_those_of_flink() -> None:
    found = settings()
    assert str(found.servers) == "h1:2181,h2:2181"
    assert (found.session_s, found.request_s, found.retry_wait_s, found.retries) == (60, 15, 5, 3)
    assert (found.layout.folder, found.layout.leader) == ("/unistream/default", "/unistream/default/leader")
    assert (found.scheme, found.is_private) == ("", False)


def test_without_servers() -> None:
    with pytest.raises(ConfigError, match=r"high-availability\.zookeeper\.quorum is not set"):
        zookeeper_settings(Configuration())


@pytest.mark.parametrize("value", ["digest:ann:a:b", "${env:ZOOKEEPER_OF_TEST}", "${file:FILE}"])
def test_credentials(value: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ZOOKEEPER_OF_TEST", "digest:ann:a:b")
    (tmp_path / "secret").write_text("digest:ann:a:b\n", encoding="utf-8")
    found = settings(
        client_authorization=value.replace("FILE", str(tmp_path / "secret")), client_acl="creator"
    )
    assert (found.scheme, found.credentials.reveal(), found.is_private) == ("digest", "ann:a:b", True)
    assert "ann" not in repr(found)


def test_credentials_are_not_shown() -> None:
    shown = redacted({AUTHORIZATION: "digest:ann:s3cret", "high-availability.type": "zookeeper"})
    assert shown == {AUTHORIZATION: HIDDEN, "high-availability.type": "zookeeper"}


@pytest.mark.parametrize(
    "value", ["", "digest", "digest:", "digest:ann", "digest::a", "x509:a:b", "ann:s3cret"]
)
def test_what_are_no_credentials(value: str) -> None:
    with pytest.raises(
        ConfigError, match=r"is not of the form digest:user:password or sasl:user:password"
    ) as caught:
        settings(client_authorization=value)
    assert "s3cret" not in str(caught.value)


def test_a_creator_needs_credentials() -> None:
    with pytest.raises(ConfigError, match="acl is creator, and there are no credentials of a creator"):
        settings(client_acl="creator")


def test_sasl_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unistream.ha.zookeeper.settings.find_spec", lambda _name: None)
    with pytest.raises(
        ConfigError, match="with the scheme sasl needs pure-sasl, which is not installed here"
    ):
        settings(client_authorization="sasl:ann:s3cret")


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("Zookeeper version: 3.9.5-0ad8c8d, built on 2025-09-01\nLatency min/avg/max: 0/0/0", (3, 9)),
        ("Zookeeper version: 3.4.14-4c25d480, built on 03/06/2019", (3, 4)),
        ("srvr is not executed because it is not in the whitelist.", None),
        ("This ZooKeeper instance is not currently serving requests", None),
        ("", None),
    ],
)
def test_the_version_of_a_server(said: str, version: tuple[int, int] | None) -> None:
    assert server_version(said) == version


def test_names_are_split_into_plain_components() -> None:
    assert components("jobs/3f2a/checkpoints/12") == ("jobs", "3f2a", "checkpoints", "12")
    for name in ("../a", "a/..", "cluster", "election/1", "a\\b", "", "/".join("a" * 17)):
        with pytest.raises(ConfigError):
            components(name)


def test_values_have_a_limit() -> None:
    check_value("a", bytes(512 * 1024))
    with pytest.raises(ConfigError, match="store it as a file and its URL here"):
        check_value("a", bytes(512 * 1024 + 1))


def tls(**options: str) -> ZooKeeperSettings:
    """`options`: below ``client.ssl.``, with ``_`` for ``-``."""
    return settings(**{f"client_ssl.{key.replace('_', '-')}": value for key, value in options.items()})


def test_without_tls_connections_are_plain() -> None:
    assert settings().tls is None
    assert tls(enabled="false").tls is None


def test_a_host_is_verified_unless_told_otherwise() -> None:
    found, unverified = tls(enabled="true").tls, tls(enabled="true", verify_hostname="false").tls
    assert found is not None
    assert unverified is not None
    assert found.context().check_hostname
    assert not unverified.context().check_hostname
    assert unverified.context().verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("options", "why"),
    [
        pytest.param({"ca": "x"}, r"ssl\.ca has no effect without .*ssl\.enabled: true", id="off"),
        pytest.param(
            {"enabled": "true", "key": "x"},
            r"ssl\.certificate and .*ssl\.key need each other",
            id="no certificate",
        ),
        pytest.param(
            {"enabled": "true", "certificate": "x"},
            r"ssl\.certificate and .*ssl\.key need each other",
            id="no key",
        ),
        pytest.param(
            {"enabled": "true", "ca": "/no/ca.pem"},
            r"ssl\.ca: cannot use /no/ca\.pem: No such file",
            id="no such file",
        ),
        pytest.param(
            {"enabled": "true", "ca": __file__},
            r"ssl\.ca: cannot use .*: it is not what is needed",
            id="not PEM",
        ),
        pytest.param(
            {"enabled": "true", "certificate": __file__, "key": __file__},
            r"ssl\.certificate: cannot use .*: it is not what is needed",
            id="no certificate in the file",
        ),
    ],
)
def test_what_cannot_be_used_for_tls(options: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        tls(**options)
