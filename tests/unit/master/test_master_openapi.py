"""The OpenAPI document: every path that is served is described, and every reference leads somewhere.

That answers are as described is seen by all tests that ask over HTTP (`described.is_as_described`).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.openapi import served_document
from tests.unit.master.served_cluster import Api
from unistream.rest.openapi import OPERATIONS


@pytest.fixture
def document(api: Api) -> dict[str, Any]:
    found: dict[str, Any] = api.http.get("/openapi.json").json()
    return found


def test_every_path_is_described_and_nothing_else(document: dict[str, Any]) -> None:
    served = {f"{m.upper()} {path}" for path, methods in document["paths"].items() for m in methods}
    assert served == OPERATIONS.keys()


def test_the_document_that_the_web_ui_is_built_from_is_the_one_that_is_served() -> None:
    kept = Path(__file__).parents[3] / "ui" / "openapi.json"
    assert kept.read_text("utf-8") == served_document(), f"python -m tests.support.openapi {kept}"


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert named == document["components"]["schemas"].keys()


def test_bodies_answers_and_errors_have_schemas(document: dict[str, Any]) -> None:
    stop = document["paths"]["/jobs/{id_}/stop"]["post"]
    assert stop["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/StopBody")
    assert stop["responses"]["202"]["content"]["application/json"]["schema"]["$ref"].endswith("/Started")
    assert stop["responses"]["default"]["content"]["application/json"]["schema"]["$ref"].endswith("/Errors")
    schemas = document["components"]["schemas"]
    assert not schemas["StopBody"]["required"], "each field of a body that has a default may be left out"
    assert set(schemas["JobInfo"]["required"]) == set(schemas["JobInfo"]["properties"]), "an answer has all"
    assert "FINISHED" in schemas["JobStatusInfo"]["properties"]["status"]["enum"]
    log = document["paths"]["/unistream/jobs/{job}/log"]["get"]["parameters"]
    assert [one["name"] for one in log] == ["job", "after", "limit"]
