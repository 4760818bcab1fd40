"""A host joins a cluster by what the web UI says, typed as it stands there."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.browser.web_ui import UI, check_case, missing, running_case
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster

pytestmark = pytest.mark.timeout(900)

TLS = {"security.ssl.internal.enabled": "true", "security.ssl.rest.enabled": "true"}
NARROW = {"size": {"width": 400, "height": 800}, "colorScheme": "dark"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if why := missing():
        pytest.skip(why)
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))


@contextmanager
def typed_on_a_host(command: str, home: Path) -> Iterator[None]:
    """The command of a page, on an account of its own."""
    program, *words = shlex.split(command)
    assert program == "unistream"
    with subprocess.Popen(
        [sys.executable, "-m", "unistream.cli", *words],
        cwd=home.parent,
        env={**os.environ, "UNISTREAM_HOME": str(home), "PYTHONPATH": str(UI.parent)},
    ) as worker:
        try:
            yield
        finally:
            worker.terminate()


@pytest.mark.parametrize("window", [{}, NARROW], ids=["wide and light", "narrow and dark"])
def test_a_host_joins(tmp_path: Path, window: dict[str, object]) -> None:
    with EmbeddedCluster(
        "standalone", Configuration(TLS), workdir=tmp_path / "cluster", session=True
    ) as cluster:
        assert cluster.rest_url is not None
        with running_case("hosts", "joining", cluster.rest_url, **window) as await_word:
            [command] = await_word("made")
            with typed_on_a_host(command, tmp_path / "other"):
                await_word("seen")


def test_a_cluster_of_one_machine_says_so(tmp_path: Path) -> None:
    with EmbeddedCluster("local", Configuration(), workdir=tmp_path / "cluster") as cluster:
        assert cluster.rest_url is not None
        check_case("hosts", "alone", cluster.rest_url)
