"""What a cluster for several hosts answers, which the recorded one is not."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Json: TypeAlias = Any

DAY_MS: Final = 24 * 3_600_000
NOW_ISSUES, BEFORE = "8f3a01bc" * 8, "01bc8f3a" * 8


def beyond_loopback(now_ms: int, job: str) -> dict[str, list[Json]]:
    """Its certificates, one authority after another, and who has changed what; by path, with the status."""
    return {
        "/unistream/certificates": [200, _certificates(now_ms)],
        "/unistream/audit": [200, {"entries": _deeds(now_ms, job)}],
    }


def disks() -> list[Json]:
    """One that is nearly full, one that nobody knows."""
    return [
        {
            "what": "checkpoints",
            "folder": "/data",
            "free_bytes": 7_000_000_000,
            "total_bytes": 100_000_000_000,
        },
        {"what": "savepoints", "folder": "s3://lake/savepoints", "free_bytes": None, "total_bytes": None},
        {"what": "jobs", "folder": "/ha", "free_bytes": 60_000_000_000, "total_bytes": 100_000_000_000},
    ]


def _certificates(now_ms: int) -> Json:
    def authority(fingerprint: str, days: int, believed_ms: int | None) -> Json:
        made_ms = now_ms - days * DAY_MS
        return {
            "fingerprint": fingerprint,
            "name": f"unistream cluster default {fingerprint[:8]}",
            "made_ms": made_ms,
            "until_ms": made_ms + 3650 * DAY_MS,
            "believed_until_ms": believed_ms,
        }

    def issued(name: str, by: str, days: int, lasts: int = 365) -> Json:
        at_ms = now_ms - days * DAY_MS
        until_ms = at_ms + lasts * DAY_MS
        return {"name": name, "hosts": [], "authority": by, "issued_ms": at_ms, "until_ms": until_ms}

    return {
        "now_ms": now_ms,
        "authorities": [authority(NOW_ISSUES, 2, None), authority(BEFORE, 40, now_ms + 28 * DAY_MS)],
        "rest": issued("", NOW_ISSUES, 1, 30) | {"hosts": ["node-1.example", "10.0.0.7", "localhost"]},
        "rest_renewed_ms": now_ms + 14 * DAY_MS,
        "encrypts_workers": True,
        "processes": [
            issued("tm-node-2-0a1b2c3d4e5f", NOW_ISSUES, 1),
            issued("tm-node-3-5f4e3d2c1b0a", BEFORE, 30),
            issued("job-manager", BEFORE, 360),
        ],
        "left_out": 0,
    }


def _deeds(now_ms: int, job: str) -> list[Json]:
    done = (
        ("POST", f"/jobs/{job}/savepoints", 202, "nightly"),
        ("PATCH", f"/jobs/{job}", 403, "dashboard on the wall"),
        ("POST", "/unistream/certificates/rotation", 200, "owner"),
        ("POST", "/unistream/workers", 201, "hosts that join"),
        ("POST", "/unistream/tokens", 201, "owner"),
    )
    return [
        {
            "atMs": now_ms - (number + 1) * 3_600_000,
            "token": f"{number:012x}",
            "name": name,
            "client": f"10.0.0.{number + 7}",
            "method": method,
            "path": path,
            "status": status,
        }
        for number, (method, path, status, name) in enumerate(done)
    ]
