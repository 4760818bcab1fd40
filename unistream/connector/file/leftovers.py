"""Staged files of a file sink's folder, by the jobs that staged them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from unistream.connector.file.sink_parts import PART, PartFile
from unistream.connector.file.sink_stage import FileStage

JOB_CHARS: Final = 16  # of a job's id, in the names of its files
_NAME: Final = re.compile(rf"{PART}.*-([0-9a-f]{{{JOB_CHARS}}})-\d+-\d+-[0-9a-f]{{12}}\.\w+")


class StagedFolder:
    """A folder that file sinks write to.

    Args:
        uri: Absolute local path or URL.
        options: Options of the fsspec file system.

    Raises:
        ConfigError: the file system cannot be used.
    """

    def __init__(self, uri: str, options: Mapping[str, Any]) -> None:
        self._stage = FileStage(uri, options)

    def by_job(self) -> dict[str, list[PartFile]]:
        """Staged files by the first `JOB_CHARS` characters of the id of their job. Raises Unreachable."""
        found = defaultdict(list)
        for file in self._stage.staged(PART):
            if (match := _NAME.fullmatch(file.name)) is not None:
                found[match[1]].append(file)
        return dict(found)

    def decided(self) -> frozenset[str]:
        """Names of those that a commit, which was cut off, has taken into the output. Raises CorruptSnapshot,
        Unreachable."""
        return self._stage.decided()

    def remove(self, files: Sequence[PartFile]) -> None:
        """Removes staged files as far as the storage allows it; a failure is passed over."""
        for file in files:
            self._stage.discard(file)
        self._stage.tidy()
