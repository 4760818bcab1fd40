"""How somebody signs in to the web UI and out of it, and what a token's scope lets its pages do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.web_ui import check_case, missing, windows
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.remote.rest_client import RestClient
from unistream.client.remote.tokens import TokensClient
from unistream.model.access import Scope
from unistream.model.submission import SubmitRequest
from unistream.worker.code import pack

pytestmark = pytest.mark.timeout(900)

NARROW = {"size": {"width": 400, "height": 800}, "colorScheme": "dark"}
TOKENS = {"security.rest.authentication": "token"}
NO_TOKENS = {"security.rest.authentication": "none"}


@pytest.fixture
def cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[EmbeddedCluster]:
    """It wants tokens. `request.param`: another configuration."""
    if why := missing():
        pytest.skip(why)
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    config = Configuration(getattr(request, "param", TOKENS))
    with EmbeddedCluster("local", config, workdir=tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def check_signin(cluster: EmbeddedCluster, tmp_path: Path) -> Callable[..., None]:
    """Runs one, with a job and the token of a reader."""
    url = cluster.rest_url
    assert url is not None
    graph, code = windows(tmp_path, 2).job_graph("flights")
    job = cluster.submit(SubmitRequest(graph=graph, artifact=pack(code), config={})).job_id

    def check(name: str, **window: Any) -> None:
        with RestClient(url) as client:
            token = TokensClient(client).create("reader", Scope.READ).token
        check_case("signin", name, url, job=str(job), token=token, **window)

    return check


@pytest.mark.parametrize(
    "name", ["byLink", "byToken", "refusedCode", "secondTab", "revoked", "reader", "proxy"]
)
def test_somebody_signs_in(check_signin: Callable[..., None], name: str) -> None:
    check_signin(name)


@pytest.mark.parametrize("window", [{}, NARROW], ids=["wide and light", "narrow and dark"])
def test_tokens_are_made_and_revoked(check_signin: Callable[..., None], window: dict[str, object]) -> None:
    check_signin("tokens", **window)


def test_the_sign_in_page_fits_a_narrow_window(check_signin: Callable[..., None]) -> None:
    check_signin("byToken", **NARROW)


@pytest.mark.parametrize("cluster", [NO_TOKENS], indirect=True, ids=["none"])
def test_nobody_is_asked_where_nobody_needs_a_token(check_signin: Callable[..., None]) -> None:
    check_signin("anybody")
