"""Each page in each of its states is as somebody has seen it, who looked at the pictures in this folder.

They are those of one machine: fonts differ. `make pictures` makes them again, before a change on the machine
that will compare; look at those that differ before you commit them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.browser.drawn import PICTURES, Drawn
from tests.browser.web_ui import check_case, missing
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster

pytestmark = pytest.mark.timeout(1_800)

RENEW = "UNISTREAM_PICTURES_RENEW"


def test_pages_are_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if why := missing():
        pytest.skip(why)
    renew = os.environ.get(RENEW, "")
    if not renew and not PICTURES.is_dir():
        pytest.skip("there are no pictures of this machine: `make pictures` makes them")
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    drawn = Drawn()
    cases = list(drawn.cases())
    (tmp_path / "cases.json").write_text(json.dumps({"now": drawn.now_ms, "cases": cases}))
    PICTURES.mkdir(exist_ok=True)
    found = Path(os.environ.get("UNISTREAM_PICTURES") or tmp_path / "found")
    found.mkdir(parents=True, exist_ok=True)
    given = {"file": str(tmp_path / "cases.json"), "folder": str(PICTURES), "found": str(found)}
    with EmbeddedCluster("local", Configuration(), workdir=tmp_path / "cluster") as cluster:
        assert cluster.rest_url is not None
        check_case("drawn", "drawn", cluster.rest_url, **given, renew=bool(renew))
    names = {f"{case['name']}.webp" for case in cases}
    if renew:
        for path in PICTURES.glob("*.webp"):
            path.unlink() if path.name not in names else None
    assert {path.name for path in PICTURES.glob("*.webp")} == names
