"""A page of the web UI that stays open while its cluster is killed, is of another version, or is far away."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.browser.chromium import Chromium, found
from tests.browser.web_ui import login_link
from tests.integration.crash_runs import Command, commands_in
from tests.integration.test_cluster_sessions import PIPELINES, await_checkpoints, begin, submit
from tests.own_access import access_in
from unistream import __version__
from unistream.base.clock import SystemClock
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.core.access import Identity
from unistream.model.access import CODE_LASTS_MS
from unistream.rest.access import AccessControl
from unistream.rest.app import create_app
from unistream.rest.listener import Listener
from unistream.rest.pages import built
from unistream.rest.server import RestServer
from unistream.rest.triggers import Triggers
from unistream.testing.devtools.process import free_ports

pytestmark = pytest.mark.timeout(900)

Start = Callable[..., Command]

MARK = "document.querySelector('.live-mark')?.innerText"
OLD = "document.querySelector('.live-notices [role=alert]')?.innerText ?? ''"
ROWS = """[...document.querySelectorAll('td.number, td .quiet')].map(node => node.innerText)
    .filter(text => !text.includes('runs for'))"""
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    if found() is None:
        pytest.skip("there is no Chromium on the PATH: `make browser` installs it, as root on Debian")
    if built() is None:
        pytest.skip("the web UI is not built: `make ui-build` does it")
    with Chromium(tmp_path / "chromium") as browser:
        yield browser


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))  # of its commands, for the owner's token
    (tmp_path / "session_pipelines.py").write_text(PIPELINES)
    with commands_in(tmp_path) as start:
        yield start


def sign_in(browser: Chromium, link: str) -> None:
    browser.open(link)
    browser.until(lambda: browser.evaluate(MARK), "somebody is signed in")


def until_marked(browser: Chromium, word: str) -> None:
    browser.until(lambda: browser.evaluate(MARK) == word, f"the page is {word}")


def until_rows_move(browser: Chromium) -> None:
    before = browser.until(lambda: browser.evaluate(ROWS), "there are rows")
    browser.until(lambda: browser.evaluate(ROWS) != before, "the rows go on")


def test_a_page_says_that_it_is_old_and_goes_on_when_its_cluster_was_killed(
    browser: Chromium, start: Start
) -> None:
    [port] = free_ports(1)
    options = ("-D", f"rest.port={port}", "-D", "security.rest.authentication=token")
    first, facts = begin(start, *options)
    job = submit(start, facts["url"], "endless")
    await_checkpoints(facts["url"], job)
    sign_in(browser, login_link(facts["url"]))
    for page in ("", f"jobs/{job}"):
        browser.open(f"{facts['url']}/ui/{page}")
        browser.until_shown("endless")
        until_marked(browser, "live")
        until_rows_move(browser)
    assert browser.evaluate(OLD) == ""
    first.end(signal.SIGKILL)
    first.assert_nothing_is_left()
    until_marked(browser, "old")
    assert "Old since" in browser.evaluate(OLD)
    assert "does not answer" in browser.evaluate(OLD)
    assert "endless" in browser.text, "what was known stays"
    assert browser.evaluate(SIDEWAYS) == 0
    second, again = begin(start, *options)
    assert again["url"] == facts["url"]
    until_marked(browser, "live")
    assert browser.evaluate(OLD) == ""
    browser.until_shown("RUNNING")
    until_rows_move(browser)
    assert second.end(signal.SIGTERM) == 0


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedCluster]:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    with EmbeddedCluster("local", Configuration(), workdir=tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def access(tmp_path: Path) -> AccessControl:
    """Of servers with a version of their own."""
    return access_in(tmp_path / "access")


def served(cluster: EmbeddedCluster, access: AccessControl, version: str, port: int = 0) -> RestServer:
    app = create_app(
        cluster.dispatcher,
        clock=SystemClock(),
        version=version,
        triggers=Triggers(lambda: uuid.uuid4().hex),
        on_shutdown=lambda: None,
        access=access,
    )
    return RestServer(app, Listener("127.0.0.1", port))


def test_a_page_of_another_version_offers_to_be_loaded_again(
    browser: Chromium, cluster: EmbeddedCluster, access: AccessControl
) -> None:
    owner = access.identify(f"Bearer {access.owner_token}")
    assert isinstance(owner, Identity)
    with closing(served(cluster, access, __version__)) as before:
        sign_in(browser, f"{before.url}/ui/#login={access.login_code(owner, CODE_LASTS_MS)}")
        until_marked(browser, "live")
        assert "Reload" not in browser.text
    with closing(served(cluster, access, "99.0.0", before.port)):
        browser.until_shown("version 99.0.0 now")
        browser.click("button", "Reload")
        browser.until(lambda: "Reload" not in browser.text and "99.0.0" in browser.text, "it is new")
        until_marked(browser, "live")


def test_where_no_stream_gets_through_each_answer_is_asked_for(
    browser: Chromium, cluster: EmbeddedCluster
) -> None:
    held = [{"urlPattern": "*/unistream/events*"}]
    browser.call("Fetch.enable", patterns=held)  # what is held back, nobody lets go on
    assert cluster.rest_url is not None
    sign_in(browser, login_link(cluster.rest_url))
    until_marked(browser, "each second")
    assert browser.evaluate(OLD) == ""
    browser.call("Fetch.disable")
    until_marked(browser, "live")
