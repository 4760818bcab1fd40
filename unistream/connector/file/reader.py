"""Reads file splits ahead of the task."""

from __future__ import annotations

from unistream.connector.common import SplitReader, decoded_split
from unistream.connector.file.decode import decode
from unistream.connector.file.format import FileSpec
from unistream.connector.file.split import FileSplit, bytes_left, encode_split


def file_reader(spec: FileSpec) -> SplitReader[FileSplit]:
    return SplitReader(
        lambda split: decode(split, spec),
        encode_split,
        lambda split: decoded_split(split, FileSplit, "file"),
        bytes_left=lambda split: bytes_left(split, is_stream=spec.codec_of(split.path) is not None),
    )
