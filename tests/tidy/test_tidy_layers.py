"""The layers of the architecture, checked by import-linter as a build step and as a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_imports_point_down() -> None:
    result = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert result.returncode == 0, result.stdout[result.stdout.find("Broken contracts") :]


def test_every_folder_of_the_package_has_a_layer() -> None:
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    layers = settings[settings.index("layers = [") : settings.index("exhaustive = true")]
    packages = {path.parent.name for path in (ROOT / "unistream").glob("*/__init__.py")}
    assert {name for name in packages if name not in layers} == set()
