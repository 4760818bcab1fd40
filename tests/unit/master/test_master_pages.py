"""The web UI is served next to the REST API, and neither is in the way of the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.master.scripted_workers import ScriptedWorkers
from tests.unit.master.served_cluster import Api
from unistream import __version__
from unistream.rest import pages

SCRIPT = "index-a1b2c3.js"


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """Files as a build leaves them."""
    root = tmp_path / "dist"
    (root / "assets").mkdir(parents=True)
    (root / "assets" / SCRIPT).write_text("run()")
    (root / "icon.svg").write_text("<svg/>")
    version = f'<meta name="unistream-version" content="{pages.SERVER_VERSION}">'
    (root / "index.html").write_text(f'<meta name="csp-nonce" content="{pages.NONCE}">{version}<p>page</p>')
    (tmp_path / "secret.txt").write_text("what nobody reads")
    return root


@pytest.fixture
def served(make_cluster: Callable[..., Any], built: Path) -> Iterator[Api]:
    api = Api(make_cluster(workers=ScriptedWorkers(ends=False)), pages=built)
    yield api
    api.close()


def test_every_page_has_a_policy_and_a_nonce_of_its_own(served: Api) -> None:
    assert served.http.get("/").headers["location"] == "/ui/"
    answers = [served.http.get(f"/ui/{path}") for path in ("", "jobs/0123/checkpoints", "a%20b?x=1")]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    nonces = {answer.text.partition('content="')[2].partition('"')[0] for answer in answers}
    assert len(nonces) == len(answers)
    assert pages.NONCE not in nonces
    for answer in answers:
        nonce = answer.text.partition('content="')[2].partition('"')[0]
        rules = dict(
            rule.partition(" ")[::2] for rule in answer.headers["content-security-policy"].split("; ")
        )
        assert (rules["default-src"], rules["script-src"]) == ("'none'", "'self'")
        assert rules["style-src"] == f"'self' 'nonce-{nonce}'"
        assert rules["frame-ancestors"] == "'none'"
        assert answer.headers["cache-control"] == "no-store"


def test_a_page_knows_which_version_has_served_it(served: Api) -> None:
    page = served.http.get("/ui/").text
    assert f'<meta name="unistream-version" content="{__version__}">' in page
    assert pages.SERVER_VERSION not in page


def test_the_page_has_the_places_that_the_server_fills() -> None:
    page = (Path(__file__).parents[3] / "ui" / "index.html").read_text("utf-8")
    assert page.count(f'"{pages.NONCE}"') == page.count(f'"{pages.SERVER_VERSION}"') == 1


def test_files_whose_names_have_a_hash_are_kept_and_no_other_file_is_served(served: Api) -> None:
    script = served.http.get(f"/assets/{SCRIPT}")
    assert (script.text, script.headers["content-type"]) == ("run()", "text/javascript; charset=utf-8")
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert served.http.get("/icon.svg").headers["content-type"] == "image/svg+xml"
    for path in (
        "none.js",
        "../index.html",
        "..%2F..%2Fsecret.txt",
        "%2e%2e/secret.txt",
        "a/b.js",
    ):
        answer = served.http.get(f"/assets/{path}")
        assert (answer.status_code, "nobody" in answer.text) == (404, False), path


def test_paths_of_flink_are_what_they_were(served: Api) -> None:
    assert served.get("/jobs/overview") == {"jobs": []}
    assert served.http.get("/nowhere").json() == {"errors": ["Not found: /nowhere"]}


def test_without_built_files_the_page_says_how_to_build_them(
    make_cluster: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "BUILT", tmp_path)
    api = Api(make_cluster())
    page = api.http.get("/")
    assert page.status_code == 200
    assert "make ui-build" in page.text
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert api.http.get(f"/assets/{SCRIPT}").status_code == 404
    api.close()
