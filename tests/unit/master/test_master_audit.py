"""The audit log: who has changed what, and what becomes of its file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.eventually import WAIT_S
from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from unistream.model.access import Scope
from unistream.rest.audit import FILE, AuditEntry, AuditLog

SOME = "0" * 31 + "a"


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


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def test_who_has_changed_what_is_noted(api: Api, anybody: httpx.Client) -> None:
    operator = api.access.issue("ops", Scope.OPERATE, None)
    anybody.get("/jobs", headers=bearer(operator.text))
    anybody.patch(f"/jobs/{SOME}?mode=cancel", headers=bearer(operator.text))
    anybody.post("/unistream/jobs", content=b"x", headers=bearer(operator.text))
    anybody.patch(f"/jobs/{SOME}")
    beat = {"key": "a", "job": SOME, "watcher": {"root_run": "r", "run": "r", "step": "s", "attempt": 0}}
    anybody.post("/unistream/run-links/heartbeat", json=beat, headers=bearer(operator.text))
    api.http.delete("/unistream/tokens/ops")
    seen = [
        (entry["name"], entry["method"], entry["path"], entry["status"], entry["client"])
        for entry in api.get("/unistream/audit")["entries"]
    ]
    assert seen == [
        ("the owner of the cluster", "DELETE", "/unistream/tokens/ops", 200, "127.0.0.1"),
        ("ops", "POST", "/unistream/jobs", 403, "127.0.0.1"),
        ("ops", "PATCH", f"/jobs/{SOME}", 404, "127.0.0.1"),
    ]
    assert api.get("/unistream/audit?limit=1")["entries"][0]["method"] == "DELETE"
    file = api.folder / "audit" / FILE
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def entry(number: int) -> AuditEntry:
    return AuditEntry(at_ms=number, token="", name="x", method="POST", path="/p", client="", status=200)


def test_an_audit_log_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unistream.rest.audit.FILE_BYTES_MAX", 400)
    log = AuditLog(tmp_path)
    for number in range(200):
        log.add(entry(number))
    assert [one.at_ms for one in log.newest(5)] == [199, 198, 197, 196, 195]
    files = list(tmp_path.iterdir())
    assert len(files) == 10
    assert all(file.stat().st_size <= 400 and file.stat().st_mode & 0o777 == 0o600 for file in files)


def test_no_file_is_open_between_two_entries(tmp_path: Path) -> None:
    AuditLog(tmp_path).add(entry(1))
    assert (tmp_path / FILE).exists()
    assert not [file.path for file in psutil.Process().open_files() if Path(file.path).parent == tmp_path]


def test_a_line_that_was_cut_off_hides_no_other(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.add(entry(1))
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"atMs":2,"tok')
    log.add(entry(3))
    assert [one.at_ms for one in log.newest(9)] == [3, 1]


def test_a_disk_that_is_full_ends_no_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, full_disk: Callable[[int], Any]
) -> None:
    log = AuditLog(tmp_path)
    with full_disk(10):
        log.add(entry(1))
    assert "event=audit_not_written" in caplog.text
    log.add(entry(2))
    assert [one.at_ms for one in log.newest(9)] == [2]
