"""Commands of the command line in this process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from unistream.cli.main import main


class Shell:
    """Runs a command; keeps what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *words: str) -> int:
        self._capsys.readouterr()
        code = main(list(words))
        self.out, self.err = self._capsys.readouterr()
        return code

    def json(self) -> Any:
        return json.loads(self.out)
