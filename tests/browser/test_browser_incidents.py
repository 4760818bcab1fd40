"""What an operator finds in the web UI while something has failed: cause, place and what comes next."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.incidents import INCIDENTS
from tests.browser.web_ui import missing
from tests.small_disk import may_mount

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("incident", INCIDENTS)
def test_pages_say_what_is_wrong(incident: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if why := missing():
        pytest.skip(why)
    if incident == "checkpoints-full" and not may_mount():
        pytest.skip("no mount namespaces here")
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    with INCIDENTS[incident](tmp_path) as scene:
        scene.check()
