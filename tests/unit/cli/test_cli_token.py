"""`unistream token` and `unistream ui`, against a cluster of this user's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.eventually import WAIT_S
from tests.unit.cli.shell import Shell
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.machine import home
from unistream.core.access import is_token
from unistream.testing.mini_cluster import DEFAULTS, ThreadHost

Start = Callable[..., EmbeddedCluster]
WANTED = {"security.rest.authentication": "token"}


def as_holder(url: str, token: str) -> httpx.Response:
    return httpx.get(
        f"{url}/unistream/identity",
        headers={"Authorization": f"Bearer {token}"},
        trust_env=False,
        timeout=WAIT_S,
    )


def test_a_token_is_printed_once_listed_and_revoked(shell: Shell, start_cluster: Start) -> None:
    url = str(start_cluster(**WANTED).rest_url)
    assert shell("token", "create", "nightly", "--scope", "operate", "--expires", "90 d") == 0
    text = shell.out.strip()
    assert is_token(text)
    assert as_holder(url, text).json()["scope"] == "operate"
    assert shell("token", "list", "--json") == 0
    [listed] = shell.json()
    assert (listed["name"], listed["scope"], listed["revokedMs"]) == ("nightly", "operate", None)
    assert listed["expiresMs"] - listed["createdMs"] == 90 * 86_400_000
    assert shell("token", "list") == 0
    assert "nightly" in shell.out
    assert text.rpartition("_")[2] not in shell.out
    assert shell("token", "revoke", listed["id"][:6]) == 0
    assert shell.out == f"token {listed['id']} (nightly) is revoked\n"
    assert as_holder(url, text).status_code == 401


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["create", ""], "1 to 100 printable characters"),
        (["create", "x", "--expires", "0"], "a duration above 0"),
        (["create", "x", "--expires", "soon"], "soon"),
        (["revoke", "nobody"], "has no token 'nobody'"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    shell: Shell, start_cluster: Start, words: list[str], text: str
) -> None:
    start_cluster(**WANTED)
    assert shell("token", *words) == 2
    assert text in shell.err
    assert shell.err.count("\n") == 1


def test_a_scope_is_one_of_four(shell: Shell, start_cluster: Start) -> None:
    start_cluster(**WANTED)
    assert shell("token", "create", "x", "--scope", "root") == 2


def test_a_link_lets_a_browser_in(shell: Shell, start_cluster: Start) -> None:
    url = str(start_cluster(**WANTED).rest_url)
    assert shell("ui") == 0
    link = urlsplit(shell.out.strip())
    assert shell.out.startswith(f"{url}/ui/#login=")
    code = link.fragment.removeprefix("login=")
    made = httpx.post(f"{url}/unistream/login", json={"code": code}, trust_env=False, timeout=WAIT_S).json()
    assert as_holder(url, made["token"]).json()["scope"] == "admin"
    assert shell("ui", "--lasts", "2 d") == 2
    assert "a login code lasts" in shell.err


def test_another_account_learns_what_to_do(shell: Shell, start_cluster: Start) -> None:
    """There the port is known, and the entry cannot be read."""
    url = str(start_cluster(**WANTED).rest_url)
    [entry] = (home.home() / "clusters").glob("*.json")
    entry.unlink()
    assert shell("list", "-m", url.removeprefix("http://")) == 2
    assert "it presents no token" in shell.err
    assert "UNISTREAM_TOKEN" in shell.err


def test_by_default_no_token_is_wanted(start_cluster: Start) -> None:
    """By clients such as Flink's, which have none."""
    url = str(start_cluster().rest_url)
    assert httpx.get(f"{url}/jobs/overview", trust_env=False, timeout=WAIT_S).json() == {"jobs": []}
    found = httpx.get(f"{url}/unistream/identity", trust_env=False, timeout=WAIT_S).json()
    assert (found["token"], found["scope"]) == ("", "admin")


def test_the_next_start_of_a_cluster_takes_its_tokens(shell: Shell, tmp_path: Path) -> None:
    """And another one does not."""
    made = ""
    for folder, wanted in (("one", None), ("one", 200), ("two", 401)):
        config = Configuration({**DEFAULTS, **WANTED})
        with EmbeddedCluster(
            "mini", config, create_host=ThreadHost, max_workers=1, workdir=tmp_path / folder
        ) as cluster:
            if wanted is None:
                assert shell("token", "create", "ci") == 0
                made = shell.out.strip()
            else:
                assert as_holder(str(cluster.rest_url), made).status_code == wanted
