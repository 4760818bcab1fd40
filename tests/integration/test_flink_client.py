"""Flink's own tools, as PyPI has them, against a cluster with tokens and TLS, through `unistream proxy`.

They are in an environment of their own in the cache folder, made by uv at the first time: 240 MB.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest

from tests.browser.chromium import NAMES, Chromium
from tests.eventually import WAIT_S
from tests.integration.crash_runs import commands_in
from tests.integration.test_cluster_sessions import PIPELINES, Start, begin, submit

FLINK: Final = "1.20.3"
OPTIONS: Final = ("security.rest.authentication=token", "security.ssl.rest.enabled=true")
SECURED: Final = [word for option in OPTIONS for word in ("-D", option)]
NEEDS: Final = [name for name in ("UV", "UNISTREAM_CACHE") if name not in os.environ]
NEEDS_JAVA: Final = [] if shutil.which("java") else ["java"]

pytestmark = pytest.mark.skipif(bool(NEEDS + NEEDS_JAVA), reason=f"not here: {NEEDS + NEEDS_JAVA}")


@pytest.fixture(scope="module")
def flink() -> Path:
    """Where Flink is."""
    place = Path(os.environ["UNISTREAM_CACHE"]) / "versions" / f"flink-{FLINK}"
    python = place / "bin" / "python"
    if not python.exists():
        _uv("venv", "--quiet", "--python", sys.executable, str(place))
    wanted = [f"{name}=={FLINK}" for name in ("apache-flink", "apache-flink-libraries")]
    _uv("pip", "install", "--quiet", "--no-deps", "--python", str(python), *wanted)
    [found] = place.glob("lib/python3*/site-packages/pyflink")
    return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "session_pipelines.py").write_text(PIPELINES)
    with commands_in(tmp_path) as start:
        yield start


def _uv(*words: str) -> None:
    subprocess.run([os.environ["UV"], *words], check=True)


class FlinkClient:
    """Its command line, which asks the cluster at `address`."""

    def __init__(self, flink: Path, address: str) -> None:
        self._flink = flink
        self._address = address

    def says(self, command: str, *words: str, code: int = 0) -> str:
        script = str(self._flink / "bin" / "flink")
        done = subprocess.run(
            ["bash", script, command, "-m", self._address, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=3 * WAIT_S,
            env={**os.environ, "FLINK_CONF_DIR": str(self._flink / "conf")},
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


def proxied(start: Start, *words: str) -> str:
    """The URL of a proxy for the cluster of this user."""
    line = start("proxy", "--json", *words).line()
    said = json.loads(line)
    assert said["cluster"].startswith("https://")
    assert said["scope"] == "admin"
    url: str = said["url"]
    return url


def test_flinks_command_line_steers_jobs_of_a_cluster_with_tokens(
    start: Start, flink: Path, tmp_path: Path
) -> None:
    _cluster, said = begin(start, *SECURED)
    first, second = (submit(start, said["url"], "endless") for _ in range(2))
    client = FlinkClient(flink, proxied(start).removeprefix("http://"))
    listed = client.says("list")
    assert f"{first} : endless (RUNNING)" in listed
    assert f"{second} : endless (RUNNING)" in listed
    assert f"Savepoint completed. Path: file://{tmp_path}/taken" in client.says(
        "savepoint", first, f"{tmp_path}/taken"
    )
    assert f"for job {first} completed" in client.says("checkpoint", first)
    assert f"Savepoint completed. Path: file://{tmp_path}/left" in client.says(
        "stop", "-p", f"{tmp_path}/left", first
    )
    assert f"Cancelled job {second}." in client.says("cancel", second)
    ended = client.says("list", "-a")
    assert f"{first} : endless (FINISHED)" in ended
    assert f"{second} : endless (CANCELED)" in ended
    refused = client.says("cancel", first, code=1)
    assert f"[job {first} cannot be cancelled: it has ended as FINISHED]" in refused
    for folder in ("taken", "left"):
        assert list((tmp_path / folder).glob("savepoint-*/*"))


def test_without_a_proxy_flinks_command_line_gets_nothing(start: Start, flink: Path) -> None:
    """So it was the proxy that has let it in."""
    _cluster, said = begin(start, *SECURED[:2])
    client = FlinkClient(flink, said["url"].removeprefix("http://"))
    assert "this cluster answers its owner, and who has a token" in client.says("list", code=1)


@pytest.mark.skipif(not any(map(shutil.which, NAMES)), reason="no Chromium here")
def test_flinks_dashboard_shows_a_job(start: Start, flink: Path, tmp_path: Path) -> None:
    [jar] = (flink / "lib").glob("flink-dist-*.jar")
    with ZipFile(jar) as archive:
        archive.extractall(tmp_path, [name for name in archive.namelist() if name.startswith("web/")])
    _cluster, said = begin(start, *SECURED)
    job = submit(start, said["url"], "endless")
    url = proxied(start, "--pages", str(tmp_path / "web"))
    with Chromium(tmp_path / "browser") as browser:
        browser.open(f"{url}/#/job/running/{job}/overview")
        browser.until_shown("RUNNING")
        browser.until_shown("Cancel Job")
        assert "endless" in browser.text
