"""Dead letters replayed by the cluster that has the job, as the web UI asks for it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.asking import as_owner
from tests.eventually import WAIT_S, eventually
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

TEXTS = pa.table({"id": [1, 2, 3], "fare": ["95", "free", "no fare"]})


def pipeline(lake: Path) -> us.Environment:
    env = us.Environment()
    rows = env.from_source(us.StaticSource(TEXTS), us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    fares = rows.with_columns(fare=us.col("fare").cast("int64"), on_error="dead-letter").uid("fares")
    fares.sink_to(us.DeltaSink(str(lake / "fares"))).uid("lake")
    fares.dead_letters_to(us.DeltaSink(str(lake / "dead")))
    return env


class Page:
    """What the page of one job asks for."""

    def __init__(self, url: str, job: str, table: Path) -> None:
        self._http = httpx.Client(base_url=url, headers=as_owner(url), trust_env=False, timeout=WAIT_S)
        self._letters = f"/unistream/jobs/{job}/dead-letters"
        self._table = f"file://{table}"

    def letters(self) -> dict[str, Any]:
        answer = self._http.get(self._letters, params={"table": self._table})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def ask(self, trigger: str, **more: Any) -> None:
        body = {"table": self._table, "triggerId": trigger, **more}
        answer = self._http.post(f"{self._letters}/replays", json=body)
        assert (answer.status_code, answer.json()) == (202, {"request-id": trigger})

    def outcome(self, trigger: str) -> dict[str, Any]:
        """When it is over."""
        found: dict[str, Any] = {}

        def is_over() -> bool:
            answer = self._http.get(f"{self._letters}/replays/{trigger}")
            assert answer.status_code == 200, answer.text
            found.update(answer.json())
            return bool(found["status"]["id"] == "COMPLETED")

        eventually(is_over, f"replay {trigger} is over")
        return dict(found["operation"])

    def close(self) -> None:
        self._http.close()


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    """Of a job that has ended; two of its three rows are letters."""
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    with EmbeddedCluster("local", Configuration(), workdir=tmp_path / "cluster") as cluster:
        env = pipeline(tmp_path / "lake")
        graph, code = env.job_graph("fares")
        made_of = env.packed_pipeline("fares")
        job = cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), pipeline=made_of)).job_id
        assert cluster.dispatcher.wait(job, WAIT_S)
        page = Page(cluster.rest_url, str(job), tmp_path / "lake" / "dead")
        yield page
        page.close()


def test_letters_are_corrected_and_replayed_once(page: Page, tmp_path: Path) -> None:
    shown = page.letters()
    assert shown["no_replay"] is None
    free, no_fare = sorted(shown["letters"], key=lambda one: json.loads(one["row"])["id"])
    first, second = uuid.uuid4().hex, uuid.uuid4().hex
    corrections = [{"letter": free["letter"], "row": free["row"].replace("free", "120")}]
    for _ in range(2):  # the first answer may have been lost
        page.ask(first, corrections=corrections)
    one = page.outcome(first)
    assert (one["state"], one["letters"], one["failed_again"]) == ("FINISHED", 1, 0), one
    page.ask(first, corrections=corrections)
    page.ask(second)
    other = page.outcome(second)
    assert (other["state"], other["letters"], other["failed_again"]) == ("FINISHED", 1, 1), other
    assert other["job"] != one["job"]

    shown = page.letters()
    (again,) = [letter for letter in shown["letters"] if not letter["replayed"]]
    assert (again["replay_of"], again["attempt"]) == (no_fare["letter"], 2)
    fares = DeltaTable(str(tmp_path / "lake" / "fares")).to_pyarrow_table().sort_by("id").to_pylist()
    assert fares == [{"id": 1, "fare": 95}, {"id": 2, "fare": 120}]
