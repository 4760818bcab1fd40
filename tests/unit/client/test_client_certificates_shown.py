"""What a cluster shows of its certificates: authorities, and what was issued until when; no secret."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from unistream.base.config import Configuration
from unistream.base.ids import TaskManagerId
from unistream.client.embedded.cluster_trust import DAY_MS, PROCESS_LASTS_MS, ClusterTrust
from unistream.model.certificates import CertificateShown
from unistream.testing.harness.operators import ManualClock
from unistream.trust import issued
from unistream.trust.issued import IssuedCertificates
from unistream.trust.requests import new_request

BEYOND = {"jobmanager.bind-host": "0.0.0.0", "rest.bind-address": "0.0.0.0"}  # nothing listens here


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_800_000_000_000)


def trust(folder: Path, clock: ManualClock, given: dict[str, str] = BEYOND) -> ClusterTrust:
    return ClusterTrust(Configuration(given), str(folder), clock)


def test_a_cluster_on_loopback_has_none(tmp_path: Path, clock: ManualClock) -> None:
    shown = trust(tmp_path, clock, {}).shown()
    assert (shown.authorities, shown.rest, shown.processes, shown.encrypts_workers) == ((), None, (), False)
    assert list(tmp_path.iterdir()) == [], "who looks makes no authority"


def test_whatever_was_issued_is_shown_without_keys(tmp_path: Path, clock: ManualClock) -> None:
    cluster = trust(tmp_path, clock)
    assert cluster.rest_context() is not None
    cluster.worker(TaskManagerId("tm-1"))
    cluster.join(new_request().request, "tm-node-7")
    shown = cluster.shown()
    [authority] = shown.authorities
    assert authority.fingerprint == cluster.authority.fingerprint
    assert (authority.made_ms, authority.believed_until_ms) == (clock.wall_ms(), None)
    assert [one.name for one in shown.processes] == ["tm-node-7", "tm-1"]
    assert {one.until_ms for one in shown.processes} == {clock.wall_ms() + PROCESS_LASTS_MS}
    assert shown.rest is not None
    assert "127.0.0.1" in shown.rest.hosts
    assert shown.rest_renewed_ms == clock.wall_ms() + 15 * DAY_MS
    assert b"PRIVATE" not in msgspec.json.encode(shown)


def test_a_former_authority_is_shown_as_long_as_it_is_believed(tmp_path: Path, clock: ManualClock) -> None:
    cluster = trust(tmp_path, clock)
    cluster.worker(TaskManagerId("tm-1"))
    former = cluster.authority.fingerprint
    clock.now_ms += DAY_MS
    cluster.rotate(2 * DAY_MS)
    cluster.worker(TaskManagerId("tm-2"))
    now, before = cluster.shown().authorities
    assert (now.made_ms, before.fingerprint) == (clock.wall_ms(), former)
    assert before.believed_until_ms == clock.wall_ms() + 2 * DAY_MS
    assert [one.authority for one in cluster.shown().processes] == [now.fingerprint, former]
    clock.now_ms += 2 * DAY_MS
    assert [one.fingerprint for one in cluster.shown().authorities] == [now.fingerprint]


def certificate(name: str, issued_ms: int = 0, until_ms: int = 10) -> CertificateShown:
    return CertificateShown(name=name, authority="a", issued_ms=issued_ms, until_ms=until_ms)


def test_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issued, "ISSUED_MAX", 2)
    kept = IssuedCertificates()
    for name in ("", "a", "b"):
        kept.note(certificate(name))
    assert kept.processes(0) == ((certificate("b"),), 1), "it says that there are more"
    assert kept.of("") is not None, "that of the REST API is always there"
    kept.note(certificate("c", issued_ms=20, until_ms=30))
    assert kept.processes(20) == ((certificate("c", 20, 30),), 1), "one that has ended is not missed"
