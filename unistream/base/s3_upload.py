"""A multipart upload that is not completed, as `unistream.base.s3_files` makes it; needs no library."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Upload:
    """`path`: of the object that it becomes, with the bucket. `id`: given by the store."""

    path: str
    id: str
