"""What is hidden, and what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.base.secrets import HIDDEN, Secret, redacted, resolved, resolved_options
from unistream.client.machine.home import metadata_url
from unistream.model.graph import JobGraph, SourceInfo

CANARY = "hunter2"


@pytest.mark.parametrize(
    "name",
    [
        *("password", "ssl.password", "sasl_plain_password", "PGPASSWORD", "passwd", "ssl.key.passphrase"),
        *("secret", "AWS_SECRET_ACCESS_KEY", "client.secret", "aws_session_token", "sasl.jaas.config"),
        *("sasl.plain.username", "sasl_oauth_token_provider", "credentials", "account_key", "api-key"),
        *("azure_storage_account_key", "private_key", "ssl.key"),
    ],
)
def test_text_under_such_a_name_is_hidden(name: str) -> None:
    assert redacted({name: CANARY}) == {name: HIDDEN}
    assert redacted({"properties": [{name: CANARY}]}) == {"properties": [{name: HIDDEN}]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ssl.password", "${env:KAFKA_PASSWORD}"),
        ("sasl.jaas.config", "${file:/run/secrets/jaas}"),
        ("sasl.mechanism", "PLAIN"),
        ("topic", "secrets"),
        ("group.id", "monitor"),
        ("partitions", 4),
        ("bounded", True),
        ("starting_offsets", {"0": 3}),
        ("url", "https://host:8080/a@b"),
    ],
)
def test_the_rest_may_be_seen(name: str, value: Any) -> None:
    assert redacted({name: value}) == {name: value}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql+psycopg://user:hunter2@host/db", "postgresql+psycopg://user:****@host/db"),
        ("s3://key:hunter2@bucket/path", "s3://key:****@bucket/path"),
        ("${env:A}hunter2", "${env:A}hunter2"),
    ],
)
def test_passwords_in_urls(text: str, shown: str) -> None:
    assert redacted(text) == shown


def test_text_around_a_reference_is_no_reference() -> None:
    assert redacted({"password": "${env:A}hunter2"}) == {"password": HIDDEN}


def test_a_secret_is_hidden_by_its_type_and_stays_one_on_its_way() -> None:
    secret = Secret(CANARY)
    for text in (repr(secret), str(secret), f"{secret}", f"{secret!r:>8}", repr([secret])):
        assert CANARY not in text
    assert redacted({"anything": secret}) == {"anything": HIDDEN}
    assert redacted(msgspec.to_builtins({"anything": secret})) == {"anything": HIDDEN}
    assert msgspec.convert(msgspec.to_builtins(secret), str | Secret) == secret
    with pytest.raises(ValueError) as raised:  # noqa: PT011  the text is what is looked at
        raise ValueError("cannot log in with", secret)
    assert CANARY not in str(raised.value)


def test_plain_text_is_there_where_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", CANARY)
    (tmp_path / "secret").write_text(f"{CANARY}\n")
    given = {
        "plain": CANARY,
        "typed": Secret(CANARY),
        "travelled": msgspec.to_builtins(Secret(CANARY)),
        "environment": "${env:CANARY}",
        "nested": {"file": f"${{file:{tmp_path / 'secret'}}}"},
        "number": 4,
    }
    found = resolved_options("option", given)
    assert found.pop("number") == 4
    assert found.pop("nested") == {"file": CANARY}
    assert set(found.values()) == {CANARY}


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ("${env:NOT_SET_AT_ALL}", "option 'secret' refers to environment variable 'NOT_SET_AT_ALL'"),
        ("${file:/no/such/file}", "option 'secret' refers to file '/no/such/file': No such file"),
    ],
)
def test_a_reference_to_nothing_is_named(reference: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        resolved_options("option", {"secret": reference})


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        pytest.param(
            "db://u:${env:PW}@host/d", "db://u:p%40s%2Fs@host/d", id="a password in a URL is quoted"
        ),
        pytest.param("db://${env:PW}@host/d", "db://p%40s%2Fs@host/d", id="a whole login"),
        pytest.param("db://u:${file:FILE}@host/d", "db://u:p%40s%2Fs@host/d", id="of a file"),
        pytest.param("db://u@${env:HOST}/d", "db://u@db:5432/d", id="a host is not"),
        pytest.param("db://${env:HOST}/d?x=a@b", "db://db:5432/d?x=a@b", id="nor one without a login"),
        pytest.param('user="u" password="${env:PW}";', 'user="u" password="p@s/s";', id="in other text"),
        pytest.param("${env:HOST},${env:HOST}", "db:5432,db:5432", id="several"),
        pytest.param("${env:URL}", "db://u:p%40@host/d", id="a whole URL as it is"),
        pytest.param("${other:PW} $PW {env:PW}", "${other:PW} $PW {env:PW}", id="no reference"),
    ],
)
def test_references_inside_text(
    value: str, plain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in {"PW": "p@s/s", "HOST": "db:5432", "URL": "db://u:p%40@host/d"}.items():
        monkeypatch.setenv(name, content)
    file = tmp_path / "a@secret"
    file.write_text("p@s/s\n")
    assert resolved("url", value.replace("FILE", str(file))) == plain


def test_the_url_of_the_metadata_may_have_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", str(tmp_path))
    config = Configuration({"metadata.url": "sqlite:///${env:PLACE}/m.db"})
    assert metadata_url(config) == f"sqlite:///{tmp_path}/m.db"
    with pytest.raises(ConfigError, match=r"metadata\.url refers to environment variable 'NOWHERE'"):
        metadata_url(Configuration({"metadata.url": "db://u:${env:NOWHERE}@host/d"}))


def test_a_graph_shows_no_secret() -> None:
    source = SourceInfo(
        connector="kafka",
        options={"topic": "flights", "properties": {"ssl.password": CANARY}},
        bounded=False,
        pull=False,
    )
    config = {"metadata.url": f"postgresql://user:{CANARY}@host/db", "parallelism.default": "2"}
    graph = JobGraph(name="flights", vertices=(), edges=(), config=config)
    assert CANARY not in repr(source)
    assert "'topic': 'flights'" in repr(source)
    assert CANARY not in repr(graph)
    assert "'parallelism.default': '2'" in repr(graph)
