"""The log of a commit group as a folder: a file for each record.

    <location>/<group>/000000000017.json

A record is created under the number behind the newest one, whole or not at all, and durable. It needs a store
with conditional writes, or a file system that creates exclusively.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from unistream.base.os_failures import failure
from unistream.connector.common import StageFiles
from unistream.port.group import RECORDS_KEPT, GroupCommit, decode_record

_RECORD: Final = re.compile(r"(\d{12})\.json")
_TIDIED_EVERY: Final = 100  # records


class FileGroupLog:
    """See `unistream.port.group.GroupLog`."""

    def __init__(self, location: str, group: str) -> None:
        where = f"commit group {group!r}"
        self._where = where
        self._files = StageFiles(location, {}, where, remote_folders=True)
        self._folder = f"{self._files.root}/{group}"

    def newest(self) -> GroupCommit | None:
        numbers = self._numbers()
        while numbers:
            path = self._path(numbers[-1])
            try:
                content = bytes(self._files.system.cat_file(path))
            except FileNotFoundError:  # so much newer ones have been written meanwhile that it is gone
                numbers = [number for number in self._numbers() if number > numbers[-1]]
                continue
            except OSError as error:
                raise failure(f"{self._where}: could not read the record {path}", error) from error
            return decode_record(content, path)
        return None

    def append(self, record: GroupCommit) -> bool:
        path, content = self._path(record.number), msgspec.json.encode(record)
        is_first = record.number == 1
        created = self._files.create_first(path, content) if is_first else self._files.create(path, content)
        if created and record.number % _TIDIED_EVERY == 0:
            self._tidy(record.number)
        return created

    def close(self) -> None:
        """Does nothing: the log holds no resource."""

    def _tidy(self, newest: int) -> None:
        """Removes old records. Best effort: one that remains is harmless."""
        for number in self._numbers():
            if number <= newest - RECORDS_KEPT:
                self._files.remove(self._path(number)[len(self._files.root) + 1 :])

    def _numbers(self) -> list[int]:
        found = (_RECORD.fullmatch(name) for name in self._files.names(self._folder))
        return sorted(int(match[1]) for match in found if match)

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:012d}.json"
