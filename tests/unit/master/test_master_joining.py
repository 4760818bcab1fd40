"""How a worker on another host gets a certificate: over REST, for one use of a token for nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.eventually import WAIT_S
from tests.support.authorities import DAY_MS, NOW_MS, authority
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from unistream.base.clock import SystemClock
from unistream.base.errors import AccessDenied
from unistream.core.access import RANDOM_BYTES, issued, parsed
from unistream.ha.folder_store import FolderHaStore, claim_folder
from unistream.master.store import TokenStore
from unistream.model.access import Scope, process_name
from unistream.model.certificates import CertificatesShown
from unistream.model.credentials import Credentials
from unistream.trust.authority import Authority, rotated
from unistream.trust.issued import authorities_shown
from unistream.trust.requests import new_request

NOT_FOR_JOINING = [scope for scope in Scope if scope is not Scope.JOIN]


class SigningIssuer:
    """The authority of a cluster that takes workers of other hosts, or of none."""

    def __init__(self, *, takes_workers: bool = True) -> None:
        self.roots = authority().roots(NOW_MS)
        self._takes_workers = takes_workers

    def join(self, request: str, name: str) -> Credentials | None:
        if not self._takes_workers:
            return None
        return authority().sign(request, name, now_ms=NOW_MS, lasts_ms=DAY_MS)

    def rotate(self, keep_ms: int) -> Authority:
        return Authority(rotated(authority(), "c", now_ms=NOW_MS, keep_ms=keep_ms))

    def shown(self) -> CertificatesShown:
        return CertificatesShown(now_ms=NOW_MS, authorities=authorities_shown(authority(), NOW_MS))


@pytest.fixture
def serve(make_cluster: Callable[..., Any]) -> Iterator[Callable[..., Api]]:
    made: list[Api] = []

    def start(**how: Any) -> Api:
        made.append(Api(make_cluster(workers=ScriptedWorkers(ends=False)), issuer=SigningIssuer(**how)))
        return made[-1]

    yield start
    for api in made:
        api.close()


def token(api: Api, uses: int | None = 1, scope: Scope = Scope.JOIN) -> str:
    body = {"name": "hosts", "scope": scope.value, "lastsMs": DAY_MS, "uses": uses}
    answer = api.http.post("/v1/unistream/tokens", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


def joined(api: Api, text: str, **other: Any) -> httpx.Response:
    body = {"request": new_request().request, "host": "node 7", "clockMs": SystemClock().wall_ms(), **other}
    return httpx.post(
        f"{api.server.url}/v1/unistream/workers",
        json=body,
        headers={"Authorization": f"Bearer {text}"},
        trust_env=False,
        timeout=WAIT_S,
    )


def uses_left(api: Api) -> list[int | None]:
    return [one["usesLeft"] for one in api.get("/unistream/tokens")["tokens"]]


def test_a_host_gets_a_certificate_and_where_to_register(serve: Callable[..., Api]) -> None:
    api = serve()
    answer = joined(api, token(api))
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert made["name"].startswith("tm-node-7-")
    assert made["roots"] == authority().roots(NOW_MS)
    assert made["control"] == api.cluster.dispatcher.control_address
    assert "BEGIN CERTIFICATE" in made["certificate"]
    assert "PRIVATE KEY" not in answer.text


def test_a_token_has_the_fingerprint_of_the_cluster(serve: Callable[..., Api]) -> None:
    presented = parsed(token(serve()))
    assert presented is not None
    assert presented.fingerprint == authority().fingerprint


def test_anybody_may_ask_for_the_authorities(serve: Callable[..., Api]) -> None:
    api = serve()
    with httpx.Client(base_url=api.server.url, trust_env=False, timeout=WAIT_S) as anybody:
        answer = anybody.get("/v1/unistream/certificates/authorities")
    assert (answer.status_code, answer.text) == (200, authority().roots(NOW_MS))


def test_who_looks_sees_the_authorities(serve: Callable[..., Api]) -> None:
    api = serve()
    [shown] = api.get("/unistream/certificates")["authorities"]
    assert shown["fingerprint"] == authority().fingerprint
    assert shown["name"].startswith("unistream cluster of a test")
    with httpx.Client(base_url=api.server.url, trust_env=False, timeout=WAIT_S) as anybody:
        assert anybody.get("/v1/unistream/certificates").status_code == 401, "a scope is needed"


def test_a_token_is_taken_as_often_as_it_says(serve: Callable[..., Api]) -> None:
    api = serve()
    text = token(api, uses=2)
    assert [joined(api, text).status_code for _ in range(3)] == [201, 201, 401]
    assert uses_left(api) == [0]
    assert "was used as often as it may be" in joined(api, text).text


def test_of_many_who_come_at_once_no_more_join(serve: Callable[..., Api]) -> None:
    api = serve()
    text, together = token(api, uses=3), threading.Barrier(8)

    def join(_: int) -> int:
        together.wait(WAIT_S)
        return joined(api, text).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(join, range(8)))
    assert statuses.count(201) == 3
    assert set(statuses) <= {201, 401, 403}


@pytest.mark.parametrize(
    "installed", [{"version": "99.1.0"}, {"python": "2.7.18"}], ids=["unistream", "Python"]
)
def test_a_host_with_another_version_uses_up_no_token(
    serve: Callable[..., Api], installed: dict[str, str]
) -> None:
    api = serve()
    text = token(api)
    answer = joined(api, text, **installed)
    assert answer.status_code == 400
    assert "host 'node 7' has unistream" in answer.json()["errors"][0]
    assert uses_left(api) == [1]
    assert joined(api, text, aFieldOfALaterVersion=1).status_code == 201


@pytest.mark.parametrize("scope", NOT_FOR_JOINING)
def test_tokens_of_people_join_nothing(serve: Callable[..., Api], scope: Scope) -> None:
    api = serve()
    answer = joined(api, token(api, uses=None, scope=scope))
    assert answer.status_code == 403, answer.text


def test_a_token_for_joining_does_nothing_else(serve: Callable[..., Api]) -> None:
    api = serve()
    headers = {"Authorization": f"Bearer {token(api)}"}
    for method, path in (("GET", "/jobs"), ("POST", "/unistream/tokens"), ("DELETE", "/cluster")):
        assert api.http.request(method, f"/v1{path}", headers=headers).status_code == 403
    assert uses_left(api) == [1]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"request": "nothing"}, "this is no request for a certificate"),
        ({"clockMs": NOW_MS + DAY_MS}, "the clock of host 'node 7' says"),
        ({"clockMs": NOW_MS - DAY_MS}, "and that of the JobManager"),
        ({"host": 7}, "host"),
    ],
)
def test_what_cannot_join_uses_nothing_up(serve: Callable[..., Api], other: dict[str, Any], why: str) -> None:
    api = serve()
    answer = joined(api, token(api), **other)
    assert answer.status_code == 400, answer.text
    assert why in answer.json()["errors"][0]
    assert uses_left(api) == [1]


def test_a_cluster_of_one_host_says_how_it_would_take_others(serve: Callable[..., Api]) -> None:
    api = serve(takes_workers=False)
    answer = joined(api, token(api))
    assert answer.status_code == 400
    assert "jobmanager.bind-host" in answer.json()["errors"][0]
    assert uses_left(api) == [1]


def test_uses_are_for_hosts_alone(serve: Callable[..., Api]) -> None:
    body = {"name": "me", "scope": "read", "lastsMs": None, "uses": 3}
    answer = serve().http.post("/v1/unistream/tokens", json=body)
    assert answer.status_code == 400
    assert "others are taken any number of times" in answer.json()["errors"][0]


# --- the store ------------------------------------------------------------------------------------


def store_in(folder: Path) -> TokenStore:
    return TokenStore(FolderHaStore(folder, claim_folder(folder)), SystemClock(), b"of the cluster")


def test_the_next_leader_knows_what_was_used(tmp_path: Path) -> None:
    first = store_in(tmp_path)
    record = issued("h", Scope.JOIN, bytes(RANDOM_BYTES), now_ms=NOW_MS, uses=2).record
    first.add(record)
    first.take_use(record.id)
    second = store_in(tmp_path)
    assert second.known[record.id].uses_left == 1
    second.take_use(record.id)
    with pytest.raises(AccessDenied, match="meanwhile"):
        second.take_use(record.id)


@pytest.mark.parametrize(
    ("host", "label"),
    [
        ("node-7.example.com", "tm-node-7-example-com-0a"),
        ("", "tm-host-0a"),
        ("...", "tm-host-0a"),
        ("Zürich", "tm-Z-rich-0a"),
        ("x" * 300, f"tm-{'x' * 24}-0a"),
        ("a\n@b/../c", "tm-a--b----c-0a"),
    ],
)
def test_a_process_has_a_name_that_a_certificate_can_have(host: str, label: str) -> None:
    assert process_name(host, "0a") == label
