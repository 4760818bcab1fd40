"""Which pipelines are another version of a job that runs."""

from __future__ import annotations

import pytest
from msgspec import structs

import unistream as us
from unistream.api.upgrade import is_other_version
from unistream.base.ids import JobId, LineageId
from unistream.model.job_info import JobInfo
from unistream.model.submission import SubmitRequest, digest_of
from unistream.worker.code import pack


def pipeline(parallelism: str = "1", limit: int = 9, **config: str) -> us.Environment:
    env = us.Environment({"parallelism.default": parallelism, **config})
    rows = env.from_collection([{"id": 1}], name="rows").uid("rows")
    rows.filter(us.col("id") < limit).uid("some").sink_to(us.BlackholeSink()).uid("out")
    return env


def submitted(env: us.Environment) -> JobInfo:
    graph, code = env.job_graph("flow")
    request = SubmitRequest(graph=graph, artifact=pack(code, with_modules=True), config=env.config.to_dict())
    return JobInfo(
        job=JobId("a"),
        name="flow",
        lineage=LineageId("l"),
        state="RUNNING",
        target="local",
        submitted_ms=1,
        digest=digest_of(request),
    )


@pytest.mark.parametrize(
    ("env", "is_other"),
    [
        pytest.param(pipeline(), False, id="the same"),
        pytest.param(pipeline(limit=8), True, id="code"),
        pytest.param(pipeline(parallelism="2"), True, id="graph"),
        pytest.param(pipeline(**{"state.backend.type": "rocksdb"}), True, id="configuration"),
        pytest.param(pipeline(**{"rest.port": "8081"}), False, id="where the cluster is"),
    ],
)
def test_another_version(env: us.Environment, is_other: bool) -> None:
    assert is_other_version(env, "flow", submitted(pipeline())) is is_other


def test_what_cannot_be_replaced_is_no_other_version() -> None:
    running, changed = submitted(pipeline()), pipeline(limit=8)
    assert not is_other_version(changed, "flow", structs.replace(running, job_type="BATCH"))
    assert not is_other_version(changed, "flow", structs.replace(running, digest="")), "nobody knows"
