"""Who may ask the REST API for what: on every path, and how people and browsers get a token."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.eventually import WAIT_S
from tests.unit.master.event_reader import Events
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from tests.unit.master.store_away import AWAY, UNSURE, StoreAway
from unistream.base.errors import (
    AccessDenied,
    ConfigError,
    CorruptSnapshot,
    NotFound,
    UnistreamError,
    Unreachable,
)
from unistream.client.machine import home
from unistream.client.machine.tokens import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from unistream.client.remote.rest_client import RestClient
from unistream.client.remote.tokens import TokensClient
from unistream.core.access import RANDOM_BYTES, Identity, issued, revoked, sealed
from unistream.ha.folder_store import FolderHaStore, claim_folder
from unistream.master.store import TokenStore
from unistream.master.store.token_store import BROWSERS_MAX, ENDED_KEPT_MS, USE_WRITTEN_MS
from unistream.model.access import Scope
from unistream.model.stored_job import encode_stored
from unistream.rest.access import CODES_MAX, AccessControl
from unistream.rest.allowed_paths import AllowedPaths
from unistream.rest.audit import AuditLog
from unistream.rest.openapi import OPERATIONS
from unistream.storage.cluster_secret import cluster_secret

SOME = "0" * 31 + "a"
ORDER = list(Scope)
SIGN_OUT = "DELETE /unistream/identity"  # nothing is answered to its token afterwards
SECRET = b"of the cluster"
PATHS = AllowedPaths((), None)
AUDIT = AuditLog(Path("/nowhere"))


@pytest.fixture
def api(make_cluster: Callable[..., Any]) -> Iterator[Api]:
    made = Api(make_cluster(workers=ScriptedWorkers(ends=False)))
    yield made
    made.close()


@pytest.fixture
def anybody(api: Api) -> Iterator[httpx.Client]:
    """A client without a token."""
    with httpx.Client(base_url=api.server.url, trust_env=False, timeout=WAIT_S) as client:
        yield client


def path_of(key: str) -> tuple[str, str]:
    method, _, template = key.partition(" ")
    return method, re.sub(r"\{\w+\}", SOME, template)


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def test_every_path_wants_a_token(api: Api, anybody: httpx.Client, subtests: pytest.Subtests) -> None:
    """None, one of another cluster, one that has expired, one that was revoked; and two at once."""
    revoked = api.access.issue("revoked", Scope.ADMIN, None)
    api.access.tokens.revoke(revoked.record.id)
    presented = {
        "it presents no token": {},
        "is none of this cluster": bearer("unistream_" + "a" * 12 + "_" + "b" * 64),
        "was revoked": bearer(revoked.text),
        "no token of unistream": bearer(api.access.owner_token[:-1]),
    }
    for key, operation in OPERATIONS.items():
        method, path = path_of(key)
        for why, headers in presented.items():
            for prefix in ("", "/v1"):
                with subtests.test(f"{prefix}{key} {why}"):
                    answer = anybody.request(method, prefix + path, headers=headers, json={})
                    if operation.needs is None:
                        assert answer.status_code != 403
                        continue
                    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
                    [sentence] = answer.json()["errors"]
                    assert why in sentence
                    assert "unistream token create" in sentence
    assert not api.shutdown_asked.is_set()


def test_a_request_with_two_tokens_has_none(api: Api, anybody: httpx.Client) -> None:
    both = [("Authorization", f"Bearer {api.access.owner_token}")] * 2
    assert anybody.get("/jobs", headers=both).status_code == 401


def test_every_path_wants_a_scope(api: Api, anybody: httpx.Client, subtests: pytest.Subtests) -> None:
    tokens = {scope: api.access.issue(scope.value, scope, None).text for scope in Scope}
    for key, operation in OPERATIONS.items():
        method, path = path_of(key)
        for scope in ORDER:
            if operation.needs is None or key in ("DELETE /cluster", "GET /unistream/events", SIGN_OUT):
                continue
            with subtests.test(f"{key} {scope.value}"):
                answer = anybody.request(method, path, headers=bearer(tokens[scope]), json={})
                assert answer.status_code != 401
                assert (answer.status_code == 403) == (not scope.allows(operation.needs))
    denied = anybody.delete("/cluster", headers=bearer(tokens[Scope.SUBMIT]))
    assert denied.json()["errors"] == ["token 'submit' has the scope 'submit', and this needs 'admin'"]
    assert not api.shutdown_asked.is_set()
    assert anybody.delete("/cluster", headers=bearer(tokens[Scope.ADMIN])).status_code == 202
    assert api.shutdown_asked.is_set()


def test_a_change_is_for_who_may_do_more_than_look() -> None:
    """A path that is added says what it needs; a query changes nothing, and a code, or the end of a token, is
    for who asks."""
    looks = {"POST /unistream/savepoints/query", "POST /unistream/login-codes", SIGN_OUT}
    open_to_readers = {key for key, one in OPERATIONS.items() if one.needs is Scope.READ}
    assert {key for key in open_to_readers if not key.startswith("GET ")} == looks
    assert [key for key, one in OPERATIONS.items() if one.needs is None] == [
        "GET /unistream/certificates/authorities",
        "POST /unistream/login",
    ]


def test_what_is_refused_is_not_read(api: Api) -> None:
    """Of the body nothing has come, and nothing is waited for."""
    head = (
        f"POST /unistream/jobs HTTP/1.1\r\nHost: 127.0.0.1:{api.server.port}\r\nContent-Length: 99999999\r\n"
    )
    with socket.create_connection(("127.0.0.1", api.server.port), WAIT_S) as connection:
        connection.sendall(f"{head}\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 401 ")


def test_a_stream_ends_with_the_token_of_its_client(api: Api) -> None:
    made = api.access.issue("ci", Scope.READ, None)
    stream = Events(api.server.port, **bearer(made.text))
    stream.until("beat")
    api.access.tokens.revoke("ci")
    while (event := stream.next()) is not None:
        assert event["event"] != "end", "the cluster goes on"
    stream.close()


# --- tokens ---------------------------------------------------------------------------------------


def test_a_token_is_made_used_listed_and_revoked(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    with RestClient(api.server.url) as owner:
        made = TokensClient(owner).create("ci", Scope.READ, 60_000)
        assert TokensClient(owner).identity().name == "the owner of the cluster"
    api._entry.unlink()  # what follows is on another machine
    monkeypatch.setenv(TOKEN_VARIABLE, made.token)
    with RestClient(api.server.url) as client:
        assert TokensClient(client).identity().name == "ci"
        assert client.jobs() == []
        with pytest.raises(AccessDenied, match="token 'ci' has the scope 'read', and this needs 'admin'"):
            TokensClient(client).create("more", Scope.ADMIN)
        [shown] = [one for one in TokenStoreView(api).tokens if one["name"] == "ci"]
        assert (shown["scope"], shown["usedMs"] is not None) == ("read", True)
        assert made.token not in json.dumps(TokenStoreView(api).tokens)
        assert api.http.delete(f"/unistream/tokens/{made.id[:4]}").status_code == 200
        with pytest.raises(AccessDenied, match=r"its token 'ci' \(.*\) was revoked at"):
            client.jobs()


class TokenStoreView:
    """The list as the owner gets it."""

    def __init__(self, api: Api) -> None:
        self.tokens = api.get("/unistream/tokens")["tokens"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"name": "", "scope": "read"}, "1 to 100 printable"),
        ({"name": "x", "scope": "root"}, "scope"),
        ({"name": "x", "scope": "read", "lastsMs": 0}, "a duration above 0"),
        ({"name": "x", "scope": "read", "for": 1}, "unknown field"),
        ({"scope": "read"}, "name"),
    ],
)
def test_a_token_that_cannot_be_is_refused(api: Api, body: dict[str, Any], why: str) -> None:
    answer = api.http.post("/unistream/tokens", json=body)
    assert answer.status_code == 400
    assert why in answer.json()["errors"][0]
    assert TokenStoreView(api).tokens == []


def test_a_file_of_the_environment_holds_a_token(
    api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = api.access.issue("ci", Scope.READ, None)
    api._entry.unlink()
    (tmp_path / "token").write_text(f"{made.text}\n# of the team\n")
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(tmp_path / "token"))
    with RestClient(api.server.url) as client:
        assert TokensClient(client).identity().token == made.record.id


def test_a_token_of_the_environment_goes_to_no_cluster_of_ones_own(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "unistream_" + "a" * 12 + "_" + "b" * 64)
    with RestClient(api.server.url) as client:
        assert TokensClient(client).identity().name == "the owner of the cluster"


def test_a_client_on_another_account_learns_what_to_do(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    api._entry.unlink()
    with RestClient(api.server.url) as client, pytest.raises(AccessDenied, match="UNISTREAM_TOKEN"):
        client.jobs()


def test_who_has_no_home_has_no_token_there(
    api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a container whose file system cannot be written."""
    (tmp_path / "file").touch()
    monkeypatch.setenv(home.HOME_VARIABLE, str(tmp_path / "file" / "below"))
    monkeypatch.setenv(TOKEN_VARIABLE, api.access.issue("ci", Scope.READ, None).text)
    with RestClient(api.server.url) as client:
        assert TokensClient(client).identity().name == "ci"


def test_an_entry_keeps_its_token_to_itself(api: Api) -> None:
    [entry] = [one for one in home.clusters() if one.url == api.server.url]
    assert entry.token.reveal() == api.access.owner_token
    assert api.access.owner_token not in repr(entry)
    path = home.home() / "clusters" / f"{entry.id}.json"
    assert path.stat().st_mode & 0o777 == 0o600


# --- browsers -------------------------------------------------------------------------------------


def test_a_browser_gets_a_token_for_a_code_once(api: Api, anybody: httpx.Client) -> None:
    reader = api.access.issue("ci", Scope.READ, 60_000)
    with RestClient(api.server.url) as owner:
        code = TokensClient(owner).login_code().code
    of_reader = anybody.post("/unistream/login-codes", json={}, headers=bearer(reader.text)).json()["code"]
    browser = anybody.post("/unistream/login", json={"code": code})
    assert (browser.status_code, browser.headers["cache-control"]) == (201, "no-store")
    assert browser.json()["scope"] == "admin"
    again = anybody.post("/unistream/login", json={"code": code})
    assert (again.status_code, "was used, or has expired" in again.text) == (401, True)
    assert anybody.get("/jobs", headers=bearer(browser.json()["token"])).status_code == 200
    second = anybody.post("/unistream/login", json={"code": of_reader}).json()
    assert (second["scope"], second["name"]) == ("read", "browser of ci")
    assert second["expiresMs"] <= (reader.record.expires_ms or 0), "no longer than what it was made with"


def test_a_browser_signs_out(api: Api, anybody: httpx.Client) -> None:
    kept, ended = (api.access.issue(f"browser of {name}", Scope.READ, None) for name in ("a", "b"))
    answer = anybody.delete("/unistream/identity", headers=bearer(ended.text))
    assert (answer.status_code, answer.json()["id"]) == (200, ended.record.id)
    again = anybody.delete("/unistream/identity", headers=bearer(ended.text))
    assert (again.status_code, "was revoked" in again.text) == (401, True)
    assert anybody.get("/unistream/identity", headers=bearer(kept.text)).status_code == 200
    assert api.http.delete("/unistream/identity").status_code == 404, "that of the owner ends with the leader"
    assert api.http.get("/unistream/identity").status_code == 200


def test_browsers_end_with_the_token_that_has_let_them_in(api: Api, anybody: httpx.Client) -> None:
    """Also one that another browser has let in, and a code that nobody has used yet."""

    def let_in(token: str) -> str:
        code = anybody.post("/unistream/login-codes", json={}, headers=bearer(token)).json()["code"]
        return str(anybody.post("/unistream/login", json={"code": code}).json()["token"])

    made, other = (api.access.issue(name, Scope.READ, None) for name in ("ci", "other"))
    first = let_in(made.text)
    second, kept = let_in(first), let_in(other.text)
    unused = anybody.post("/unistream/login-codes", json={}, headers=bearer(made.text)).json()["code"]
    api.access.tokens.revoke("ci")
    statuses = [
        anybody.get("/jobs", headers=bearer(one)).status_code for one in (first, second, kept, other.text)
    ]
    assert statuses == [401, 401, 200, 200]
    late = anybody.post("/unistream/login", json={"code": unused})
    assert (late.status_code, "taken no more" in late.text) == (401, True)
    assert {one["name"] for one in TokenStoreView(api).tokens} == {"ci", "other", "browser of other"}


def test_who_follows_many_links_fills_no_list(api: Api, anybody: httpx.Client) -> None:
    reader = api.access.issue("ci", Scope.READ, None)
    made = []
    for _ in range(BROWSERS_MAX + 3):
        code = anybody.post("/unistream/login-codes", json={}, headers=bearer(reader.text)).json()["code"]
        made.append(anybody.post("/unistream/login", json={"code": code}).json()["token"])
    assert len(TokenStoreView(api).tokens) == 1 + BROWSERS_MAX
    assert anybody.get("/jobs", headers=bearer(made[0])).status_code == 401
    assert anybody.get("/jobs", headers=bearer(made[-1])).status_code == 200


@pytest.mark.parametrize("lasts_ms", [0, -5, 86_400_001])
def test_a_code_lasts_a_day_at_most(api: Api, lasts_ms: int) -> None:
    answer = api.http.post("/unistream/login-codes", json={"lastsMs": lasts_ms})
    assert (answer.status_code, "a login code lasts" in answer.text) == (400, True)


# --- the store ------------------------------------------------------------------------------------


class HandClock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now_ms = 1_800_000_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


def store_in(folder: Path) -> FolderHaStore:
    return FolderHaStore(folder, claim_folder(folder))


def test_the_next_leader_takes_the_same_tokens(tmp_path: Path) -> None:
    clock = HandClock()
    first = AccessControl(TokenStore(store_in(tmp_path), clock, SECRET), clock, PATHS, AUDIT)
    kept, ended = (first.issue(name, Scope.READ, None) for name in ("kept", "ended"))
    first.tokens.revoke("ended")
    owner = first.owner_token
    second = AccessControl(TokenStore(store_in(tmp_path), clock, SECRET), clock, PATHS, AUDIT)
    found = [second.identify(f"Bearer {one}") for one in (kept.text, ended.text, owner, second.owner_token)]
    assert [isinstance(one, Identity) for one in found] == [True, False, False, True]
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert kept.text.rpartition("_")[2].encode() not in stored


def test_a_revoked_token_is_not_taken_although_the_store_is_away(tmp_path: Path) -> None:
    clock = HandClock()
    store = StoreAway(store_in(tmp_path), "tokens")
    control = AccessControl(TokenStore(store, clock, SECRET), clock, PATHS, AUDIT)
    made = control.issue("ci", Scope.READ, None)
    store.away = AWAY
    with pytest.raises(Unreachable):
        control.tokens.revoke("ci")
    assert not isinstance(control.identify(f"Bearer {made.text}"), Identity)


def test_a_leader_that_dies_within_a_revocation_leaves_no_browser_in(tmp_path: Path) -> None:
    clock = HandClock()
    store = store_in(tmp_path)
    control = AccessControl(TokenStore(store, clock, SECRET), clock, PATHS, AUDIT)
    made, other = (control.issue(name, Scope.READ, None) for name in ("ci", "other"))
    first = control.issue("a", Scope.READ, None, parent=made.record.id)
    second = control.issue("b", Scope.READ, None, parent=first.record.id)
    kept = control.issue("c", Scope.READ, None, parent=other.record.id)
    ended = sealed(revoked(made.record, clock.now_ms), SECRET)  # what is written first
    entry = store.read(f"tokens/{made.record.id}")
    assert entry is not None
    store.replace(f"tokens/{made.record.id}", encode_stored(ended), entry.version)
    after = AccessControl(TokenStore(store_in(tmp_path), clock, SECRET), clock, PATHS, AUDIT)
    found = [isinstance(after.identify(f"Bearer {one.text}"), Identity) for one in (first, second, kept)]
    assert found == [False, False, True]


def test_tokens_that_have_ended_long_ago_make_room(tmp_path: Path) -> None:
    clock = HandClock()
    control = AccessControl(TokenStore(store_in(tmp_path), clock, SECRET), clock, PATHS, AUDIT)
    control.issue("short", Scope.READ, 1_000)
    clock.now_ms += 1_000 + ENDED_KEPT_MS - 1
    control.issue("one", Scope.READ, None)
    assert {one.name for one in control.tokens.known.values()} == {"short", "one"}
    clock.now_ms += 1
    control.issue("two", Scope.READ, None)
    assert {one.name for one in control.tokens.known.values()} == {"one", "two"}


def test_there_are_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock()
    control = AccessControl(TokenStore(store_in(tmp_path), clock, SECRET), clock, PATHS, AUDIT)
    identity = control.identify(f"Bearer {control.owner_token}")
    assert isinstance(identity, Identity)
    for _ in range(CODES_MAX):
        control.login_code(identity, 1_000)
    with pytest.raises(ConfigError, match=rf"^{CODES_MAX} login codes wait to be used, which is the most$"):
        control.login_code(identity, 1_000)
    clock.now_ms += 1_000
    control.login_code(identity, 1_000)
    monkeypatch.setattr("unistream.master.store.token_store.TOKENS_MAX", 2)
    control.issue("one", Scope.READ, None)
    control.issue("two", Scope.READ, None)
    with pytest.raises(ConfigError, match=r"^this cluster has 2 tokens, which is the most"):
        control.issue("three", Scope.READ, None)


def test_uses_are_written_now_and_then(tmp_path: Path) -> None:
    clock = HandClock()
    tokens = TokenStore(store_in(tmp_path), clock, SECRET)
    control = AccessControl(tokens, clock, PATHS, AUDIT)
    made = control.issue("ci", Scope.READ, None)
    assert tokens.is_use_due(made.record.id)
    tokens.used(made.record.id)
    assert not tokens.is_use_due(made.record.id)
    first_ms, clock.now_ms = clock.now_ms, clock.now_ms + USE_WRITTEN_MS
    assert tokens.is_use_due(made.record.id)
    again = TokenStore(store_in(tmp_path), clock, SECRET)
    assert again.known[made.record.id].used_ms == first_ms


@pytest.mark.parametrize("away", [AWAY, UNSURE], ids=["not written", "not confirmed"])
def test_what_the_store_has_not_confirmed_is_written_again(tmp_path: Path, away: UnistreamError) -> None:
    clock = HandClock()
    store = StoreAway(store_in(tmp_path), "tokens")
    tokens = TokenStore(store, clock, SECRET)
    AccessControl(tokens, clock, PATHS, AUDIT).issue("ci", Scope.READ, None)
    store.away = away
    with pytest.raises(type(away)):
        tokens.revoke("ci")
    store.away = None
    [record] = tokens.known.values()
    assert tokens.revoke(record.id).revoked_ms is not None
    [kept] = TokenStore(store_in(tmp_path), clock, SECRET).known.values()
    assert kept.revoked_ms is not None


@pytest.mark.parametrize("text", ["none", "abc", ""])
def test_what_is_revoked_is_there(tmp_path: Path, text: str) -> None:
    clock = HandClock()
    tokens = TokenStore(store_in(tmp_path), clock, SECRET)
    AccessControl(tokens, clock, PATHS, AUDIT).issue("ci", Scope.READ, None)
    with pytest.raises(NotFound, match="has no token"):
        tokens.revoke(text)


def test_a_record_that_cannot_be_read_lets_nobody_in_and_keeps_nobody_out(tmp_path: Path) -> None:
    clock = HandClock()
    store = store_in(tmp_path)
    made = AccessControl(TokenStore(store, clock, SECRET), clock, PATHS, AUDIT).issue("ci", Scope.READ, None)
    store.create("tokens/0123456789ab", b"{}")
    control = AccessControl(TokenStore(store_in(tmp_path), clock, SECRET), clock, PATHS, AUDIT)
    assert isinstance(control.identify(f"Bearer {made.text}"), Identity)


def test_who_can_write_the_store_makes_no_token(tmp_path: Path) -> None:
    """ZooKeeper may be open to others: their records are not sealed, or not as they are now."""
    clock = HandClock()
    store = store_in(tmp_path)
    control = AccessControl(TokenStore(store, clock, SECRET), clock, PATHS, AUDIT)
    reader = control.issue("ci", Scope.READ, None)
    entry = store.read(f"tokens/{reader.record.id}")
    assert entry is not None
    raised = entry.value.replace(b'"read"', b'"admin"')
    store.replace(f"tokens/{reader.record.id}", raised, entry.version)
    forged = issued("me", Scope.ADMIN, bytes(RANDOM_BYTES), now_ms=clock.now_ms)
    store.create(f"tokens/{forged.record.id}", encode_stored(sealed(forged.record, b"another secret")))
    store.create("tokens/" + "f" * 12, entry.value)
    after = AccessControl(TokenStore(store_in(tmp_path), clock, SECRET), clock, PATHS, AUDIT)
    for text in (reader.text, forged.text, reader.text.replace(reader.record.id, "f" * 12)):
        assert not isinstance(after.identify(f"Bearer {text}"), Identity)


def test_all_leaders_have_one_secret(tmp_path: Path) -> None:
    first = cluster_secret(str(tmp_path))
    assert cluster_secret(f"file://{tmp_path}") == first
    file = tmp_path / "security" / "secret"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    file.write_text("changed")
    with pytest.raises(CorruptSnapshot, match="is no secret of a cluster"):
        cluster_secret(str(tmp_path))


def test_where_no_token_is_wanted_everybody_is_an_admin(tmp_path: Path) -> None:
    clock = HandClock()
    store = TokenStore(store_in(tmp_path), clock, SECRET)
    control = AccessControl(store, clock, PATHS, AUDIT, required=False)
    found = control.identify(None)
    assert isinstance(found, Identity)
    assert (found.token, found.scope) == ("", Scope.ADMIN)
