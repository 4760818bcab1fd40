"""Pipelines that are named on the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from unistream.api import load

if TYPE_CHECKING:
    from unistream.api.environment import Environment


def load_function(reference: str) -> Callable[[Environment], object]:
    """The function that a reference names, as `unistream.api.load.load_function`; here, and in workers of
    this process, the current folder can be imported from."""
    _make_importable(os.getcwd())
    return load.load_function(reference)


def _make_importable(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if folder not in inherited:
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *inherited])
