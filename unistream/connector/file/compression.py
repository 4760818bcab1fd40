"""Text that is compressed as a whole: which files are, and their text as a file of its own.

It is decompressed before its first row is returned, into a file without a name in the temporary folder. So an
archive that is cut off or damaged is no shorter table, and positions in the text mean what they mean in any
other text.
"""

from __future__ import annotations

import os
import tempfile
from typing import Final, Literal, get_args

import pyarrow as pa

from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.limits import MIB

Codec = Literal["gzip", "zstd", "bz2"]
Compression = Literal["infer", "gzip", "zstd", "bz2"] | None
_SUFFIXES: Final[dict[str, Codec]] = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_OTHERS: Final = (".lz4", ".br", ".xz", ".zip", ".snappy", ".Z")
_CHUNK_BYTES: Final = MIB


def check_compression(compression: object, file_format: str) -> None:
    """Checks the argument `compression`. Raises ConfigError: it is none, or not for files of this format."""
    if compression not in ("infer", *get_args(Codec), None):
        raise ConfigError(
            f"compression of a file source must be infer, {', '.join(get_args(Codec))} or None, not "
            f"{compression!r}"
        )
    if compression in get_args(Codec) and file_format not in ("csv", "json"):
        raise ConfigError(
            f"compression={compression!r} is for CSV and JSON lines; {file_format} compresses its own parts"
        )


def codec_of(path: str, compression: Compression) -> Codec | None:
    """The codec by which a file is compressed; None: the file is plain text.

    >>> codec_of("a.csv.gz", "infer"), codec_of("a.csv", "infer"), codec_of("a.csv.gz", None)
    ('gzip', None, None)

    Raises:
        ConfigError: its suffix is that of another compression.
    """
    if compression != "infer":
        return compression
    if path.endswith(_OTHERS):
        raise ConfigError(
            f"file {path}: of compressed text only {', '.join(_SUFFIXES)} is read; compress it so, or say "
            "compression=None if it is plain text"
        )
    return next((codec for suffix, codec in _SUFFIXES.items() if path.endswith(suffix)), None)


def decompressed(file: pa.NativeFile, codec: Codec, path: str, at_most: int | None = None) -> pa.NativeFile:
    """Decompresses the text of a file, into a file that is gone when it is closed.

    Args:
        file: Compressed.
        codec: By which.
        path: Of it.
        at_most: Bytes of text that are needed, from its beginning; None: all.

    Raises:
        UserCodeError: it is damaged, cut off, or no such archive.
        OSError: there is no room for its text.
    """
    if not file.size():
        raise UserCodeError(f"file {path} is no {codec} archive: it is empty; its text may have been cut off")
    handle, name = tempfile.mkstemp(prefix="unistream-text-")
    try:
        with os.fdopen(handle, "wb") as text:
            stream = pa.CompressedInputStream(file, codec)
            while (at_most is None or text.tell() < at_most) and (piece := stream.read(_CHUNK_BYTES)):
                text.write(piece)
        return pa.OSFile(name)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the storage; Arrow reports a damaged archive as an OSError without a number
        raise UserCodeError(f"file {path} is damaged or cut off as a {codec} archive: {error}") from error
    finally:
        os.unlink(name)
