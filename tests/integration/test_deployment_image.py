"""What the lines of the image's Dockerfile do, in an empty environment instead of a container: at night,
since packages come over the network. That containers start of it needs an engine, and is not tried."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.eventually import WAIT_S
from tests.integration.test_wheel import ROOT, call_uv, clean_environment

DOCKERFILE: Final = ROOT / "deployments" / "image" / "Dockerfile"
PLACES: Final = re.compile(r"(?<![\w/])/(?:opt/unistream|wheels|image)\b")
OF_DEBIAN: Final = "apt-get "


def lines(word: str) -> list[str]:
    joined = DOCKERFILE.read_text("utf-8").replace("\\\n", " ")
    return re.findall(rf"^{word} (.*)$", joined, re.MULTILINE)


@pytest.mark.slow
def test_each_line_of_the_build_succeeds_and_makes_an_environment_that_compiles_nothing(
    tmp_path: Path,
) -> None:
    call_uv("build", "--wheel", "--quiet", "--out-dir", str(tmp_path / "wheels"))
    runs = [line for line in lines("RUN") if not line.startswith(OF_DEBIAN)]
    assert len(runs) == len(lines("RUN")) - 1, "Python alone is of Debian"
    for line in runs:
        command = PLACES.sub(lambda place: f"{tmp_path}{place[0]}", line)
        done = subprocess.run(
            ["sh", "-c", command.replace("python3 -m venv", f"{sys.executable} -m venv")],
            cwd=tmp_path,
            env=clean_environment(tmp_path),
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * WAIT_S,
        )
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    assert (tmp_path / "image/var/lib/unistream").stat().st_mode & 0o777 == 0o700
    program = tmp_path / "opt/unistream/bin/unistream"
    for words in (["cluster", "start", "--help"], ["taskmanager", "start", "--help"], ["config", "show"]):
        subprocess.run([program, *words], check=True, env=clean_environment(tmp_path), timeout=WAIT_S)
    assert list((tmp_path / "cache").rglob("*.loops*")) == [], "machine code is in the environment"


def test_the_image_is_neither_root_nor_has_a_shell() -> None:
    assert lines("FROM") == ["debian:12-slim AS build", "gcr.io/distroless/python3-debian12:nonroot"]
    [user] = lines("USER")
    assert int(user.partition(":")[0]) > 0
    assert lines("ENTRYPOINT") == ['["/opt/unistream/bin/unistream"]']
