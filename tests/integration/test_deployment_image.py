"""The Dockerfile of the image. That it is built needs an engine for containers, and is not tried."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

DOCKERFILE: Final = Path(__file__).resolve().parents[2] / "deployments" / "image" / "Dockerfile"


def lines(word: str) -> list[str]:
    joined = DOCKERFILE.read_text("utf-8").replace("\\\n", " ")
    return re.findall(rf"^{word} (.*)$", joined, re.MULTILINE)


def test_the_image_is_neither_root_nor_has_a_shell() -> None:
    assert lines("FROM") == ["debian:12-slim AS build", "gcr.io/distroless/python3-debian12:nonroot"]
    [user] = lines("USER")
    assert int(user.partition(":")[0]) > 0
    assert lines("ENTRYPOINT") == ['["/opt/unistream/bin/unistream"]']
