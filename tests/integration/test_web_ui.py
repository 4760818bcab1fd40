"""The web UI in a real browser, as short as it can be; `make browser` has the rest (`tests/browser`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.web_ui import check_case, missing, windows
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack


@pytest.mark.timeout(600)
def test_a_job_is_saved_and_cancelled_in_the_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    why = missing()
    if why is not None:
        pytest.skip(why)
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    with EmbeddedCluster("local", Configuration(), workdir=tmp_path / "cluster") as cluster:
        graph, code = windows(tmp_path, 1).job_graph("flights")
        job = cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config={})).job_id
        check_case("actions", "saveAndCancel", cluster.rest_url, job=str(job))
        info = cluster.dispatcher.job(job)
    assert (info.state, info.savepoint is not None) == ("CANCELED", True)
