"""How the job of a run ends is read from the run's tag."""

from __future__ import annotations

import pytest

from tests.unit.dagster.test_dagster_attached import policy
from unistream.dagster.run.attached import EndPolicy
from unistream.dagster.run.policy_tag import POLICY_TAG, end_policy_of, written

RESOURCE = policy("cancel", savepoint_dir="s3://of-resource", timeout_s=7, form="native")


@pytest.mark.parametrize(
    "of_run",
    [
        pytest.param(policy(), id="defaults"),
        pytest.param(policy("drain", savepoint_dir="s3://b/a, on_terminate=cancel", timeout_s=0.5), id="all"),
        pytest.param(policy("detach", form="native"), id="another format, and no folder"),
    ],
)
def test_what_is_written_is_read(of_run: EndPolicy) -> None:
    tag = written({"resume": "s3://snapshots/a", "mode": "attached"}, of_run)
    assert end_policy_of({POLICY_TAG: tag}, RESOURCE) == of_run


@pytest.mark.parametrize(
    ("tag", "policy"),
    [
        pytest.param("", RESOURCE, id="none"),
        pytest.param("a=b, c", RESOURCE, id="nothing of it"),
        pytest.param("on_terminate=perhaps, terminate_timeout_s=-1, savepoint_format=", RESOURCE, id="wrong"),
        pytest.param(
            "resume=latest, on_running=upgrade, on_terminate=drain, mode=detached",
            policy("drain", savepoint_dir="s3://of-resource", timeout_s=7, form="native"),
            id="of an earlier version",
        ),
    ],
)
def test_what_the_tag_does_not_say_is_of_the_resource(tag: str, policy: EndPolicy) -> None:
    assert end_policy_of({POLICY_TAG: tag}, RESOURCE) == policy
