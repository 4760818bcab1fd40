"""From a description to a pipeline: its printed program is executed, so that what one reads is what runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import unistream as us
from tests.equality import functions
from tests.equality.pipelines import Pipeline


def build(
    pipeline: Pipeline,
    folder: Path,
    config: Mapping[str, str],
    *,
    env: us.Environment | None = None,
    sink: Callable[[str], Any] | None = None,
) -> us.Environment:
    """The environment in which the program was executed.

    Args:
        folder: Gets the files of the sources, and the output of the sinks.
        env: One to be used; None: a new one with `config`.
    """
    env = us.Environment(config) if env is None else env
    names = {**vars(functions), "env": env, "folder": folder, "sink": sink or functions.sinks_in(folder)}
    exec(compile(pipeline.body(), f"<pipeline in {folder}>", "exec"), names)
    return env
