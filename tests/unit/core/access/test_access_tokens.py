"""Tokens: their text, what is kept of them, and whom a request that presents one is from."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unistream.base.errors import ConfigError
from unistream.core.access import (
    RANDOM_BYTES,
    Denied,
    Identity,
    TokenRecord,
    identify,
    is_token,
    issued,
    parsed,
    revoked,
)
from unistream.model.access import Scope

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
MADE = issued("ci", Scope.OPERATE, bytes(range(RANDOM_BYTES)), now_ms=NOW_MS, lasts_ms=DAY_MS)
OTHER = issued("ops", Scope.ADMIN, bytes(RANDOM_BYTES), now_ms=NOW_MS)
SECRET = MADE.text.rpartition("_")[2]
IDENTITY = Identity(token=MADE.record.id, name="ci", scope=Scope.OPERATE, expires_ms=NOW_MS + DAY_MS)

NOTHING = "it presents no token"
NONE = "what it presents is no token of unistream"
FOREIGN = "is none of this cluster"


def asked(text: str | None, *, now_ms: int = NOW_MS, record: TokenRecord = MADE.record) -> Identity | Denied:
    return identify(text, {record.id: record, OTHER.record.id: OTHER.record}.get, now_ms)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        pytest.param(f"Bearer {MADE.text}", IDENTITY, id="its text"),
        pytest.param(f"bearer   {MADE.text} ", IDENTITY, id="in other case and spaces"),
        pytest.param(None, NOTHING, id="no header"),
        pytest.param("", NOTHING, id="an empty one"),
        pytest.param("Bearer", NONE, id="a scheme alone"),
        pytest.param(MADE.text, NONE, id="no scheme"),
        pytest.param("Basic dXNlcjpwYXNz", NONE, id="another scheme"),
        pytest.param(f"Basic {MADE.text}", NONE, id="its text with another scheme"),
        pytest.param(f"Bearer {MADE.text[:-1]}", NONE, id="cut off"),
        pytest.param(f"Bearer {MADE.text}0", NONE, id="too long"),
        pytest.param(f"Bearer {MADE.text} {MADE.text}", NONE, id="twice"),
        pytest.param(f"Bearer {MADE.text.upper()}", NONE, id="in capitals"),
        pytest.param(f"Bearer {MADE.text}\x00", NONE, id="with a NUL"),
        pytest.param(f"Bearer unistream_{'f' * 12}_{SECRET}", FOREIGN, id="an id that there is not"),
        pytest.param(f"Bearer unistream_{MADE.record.id}_{'0' * 64}", FOREIGN, id="another secret"),
        pytest.param(f"Bearer unistream_{OTHER.record.id}_{SECRET}", FOREIGN, id="the secret of another one"),
        pytest.param(
            f"Bearer unistream_{MADE.record.id}_{MADE.record.digest}", FOREIGN, id="what is kept of it"
        ),
    ],
)
def test_whom_a_request_is_from(text: str | None, wanted: Identity | str) -> None:
    found = asked(text)
    if isinstance(wanted, Identity):
        assert found == wanted
    else:
        assert isinstance(found, Denied)
        assert wanted in found.why


@pytest.mark.parametrize(
    ("now_ms", "changes", "wanted"),
    [
        pytest.param(NOW_MS + DAY_MS - 1, {}, None, id="in its last millisecond"),
        pytest.param(NOW_MS + DAY_MS, {}, "has expired at 2027-01-16T08:00:00Z", id="at its end"),
        pytest.param(NOW_MS + 99 * DAY_MS, {"expires_ms": None}, None, id="for ever"),
        pytest.param(
            NOW_MS, {"revoked_ms": NOW_MS - 1_000}, "was revoked at 2027-01-15T07:59:59Z", id="revoked"
        ),
        pytest.param(NOW_MS - DAY_MS, {}, None, id="by a clock that goes behind"),
    ],
)
def test_a_token_ends(now_ms: int, changes: dict[str, Any], wanted: str | None) -> None:
    record = msgspec.structs.replace(MADE.record, **changes)
    found = asked(f"Bearer {MADE.text}", now_ms=now_ms, record=record)
    assert record.has_ended(now_ms) == (wanted is not None)
    assert isinstance(found, Identity) if wanted is None else wanted in str(found)


def test_what_has_become_of_a_token_learns_who_has_its_secret_only() -> None:
    ended = revoked(MADE.record, NOW_MS)
    found = asked(f"Bearer unistream_{MADE.record.id}_{'0' * 64}", record=ended)
    assert isinstance(found, Denied)
    assert ("revoked" in found.why, "'ci'" in found.why) == (False, False)


def test_the_secret_is_not_in_what_is_kept() -> None:
    stored = msgspec.json.encode(MADE.record)
    assert SECRET.encode() not in stored
    assert MADE.record.digest == hashlib.sha256(bytes.fromhex(SECRET)).hexdigest()
    assert msgspec.json.decode(stored, type=TokenRecord) == MADE.record


def test_a_token_is_revoked_once() -> None:
    ended = revoked(MADE.record, NOW_MS)
    assert revoked(ended, NOW_MS + 5) == ended


@pytest.mark.parametrize("name", ["", "   ", "a" * 101, "two\nlines", "a\x1b[31m"])
def test_names_that_no_list_can_show_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="1 to 100 printable characters"):
        issued(name, Scope.READ, bytes(RANDOM_BYTES), now_ms=NOW_MS)


@pytest.mark.parametrize("lasts_ms", [0, -1])
def test_a_token_lasts(lasts_ms: int) -> None:
    with pytest.raises(ConfigError, match="a duration above 0"):
        issued("ci", Scope.READ, bytes(RANDOM_BYTES), now_ms=NOW_MS, lasts_ms=lasts_ms)


@given(st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES), st.sampled_from(Scope))
def test_every_token_identifies_itself(random: bytes, scope: Scope) -> None:
    made = issued("x", scope, random, now_ms=NOW_MS)
    assert is_token(made.text)
    presented = parsed(made.text)
    assert presented is not None
    assert (presented.id, presented.secret) == (random[:6].hex(), random[6:].hex())
    found = identify(f"Bearer {made.text}", {made.record.id: made.record}.get, NOW_MS)
    assert found == Identity(token=made.record.id, name="x", scope=scope)


@given(st.text(max_size=200))
def test_any_other_text_is_from_nobody(text: str) -> None:
    assert isinstance(asked(text), Denied)
    assert isinstance(asked(f"Bearer {text}"), Denied)


def test_scopes_hold_the_ones_before_them() -> None:
    allowed = {scope: [one for one in Scope if scope.allows(one)] for scope in Scope}
    order = [Scope.READ, Scope.OPERATE, Scope.SUBMIT, Scope.ADMIN]
    people = {scope: order[: place + 1] for place, scope in enumerate(order)}
    assert allowed == {**people, Scope.JOIN: [Scope.JOIN]}
    assert Scope.parse(" Admin ") is Scope.ADMIN
    with pytest.raises(ConfigError, match="one of read, operate, submit, admin"):
        Scope.parse("root")
