"""The plan of a submitted job in words, over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.eventually import WAIT_S
from tests.unit.master.served_cluster import Api
from unistream.base.ids import JobId


def test_a_job_says_what_it_became_also_when_it_has_ended(api: Api, submission: Callable[..., Any]) -> None:
    dispatcher = api.cluster.dispatcher
    job: JobId = dispatcher.submit(submission())
    path = f"/unistream/jobs/{job}/explain"
    text = api.get(path)["text"]
    assert text.startswith("job graph 'numbers': 2 vertices, 1 exchange, STREAMING\n")
    assert "input 0 <- [1] hash by k" in text
    assert "execution graph: 4 subtasks, 1 region" in text
    assert "stream graph" not in text, "that is not submitted"
    dispatcher.cancel(job)
    assert dispatcher.wait(job, WAIT_S)
    assert api.get(path)["text"] == text
    assert api.http.get(f"/unistream/jobs/{'f' * 32}/explain").status_code == 404
