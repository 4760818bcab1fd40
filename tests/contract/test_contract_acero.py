"""The private module that we use in place of `pyarrow.acero` has the same classes, and stays light."""

from __future__ import annotations

import subprocess
import sys

import pyarrow.acero as public
import pytest

from tests.eventually import WAIT_S
from unistream.operator.common import acero


@pytest.mark.parametrize(
    "name", ["AggregateNodeOptions", "Declaration", "ProjectNodeOptions", "TableSourceNodeOptions"]
)
def test_the_class_is_the_public_one(name: str) -> None:
    assert getattr(acero.engine, name) is getattr(public, name)


def test_operators_do_not_load_pandas() -> None:
    """Every worker would pay for it."""
    code = "import sys, unistream.operator.window, unistream.worker.process; print('pandas' in sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_S)
    assert done.stdout.strip() == "False"
