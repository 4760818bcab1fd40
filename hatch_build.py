"""Puts machine code into the wheel, so that no machine of the kind that it is built on compiles anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

EDITABLE = "editable"
"""The version of a wheel that only points to a checkout, which compiles for itself."""


class MachineCode(BuildHookInterface):  # type: ignore[misc, type-arg]
    """Compiles all loops, in the environment of the build, and adds them as `unistream/_loops`."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == EDITABLE:
            return
        self._folder = tempfile.mkdtemp()
        # An isolated build of pip has its libraries by the path of this process, and not in its environment.
        subprocess.run(
            [sys.executable, "-m", "unistream.connector.common.machine_code", self._folder],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([self.root, *filter(None, sys.path)])},
            check=True,
        )
        build_data["force_include"][self._folder] = "unistream/_loops"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != EDITABLE:
            shutil.rmtree(self._folder)
