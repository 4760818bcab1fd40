"""S3 as a file system: s3fs with the errors, folders and conditional writes that our protocols need.

The only module that knows s3fs; what it uses of its private parts (`_call_s3`, `_mkdir`, `_makedirs`,
`_rmdir`) is held by a contract test. Differences to s3fs:

- An object that exists is `FileExistsError` for a conditional put, also where the store does not name the
  condition that failed; a put that met another one under way (409) is repeated.
- Every failure is an `OSError`: also timeouts and broken connections, which botocore has classes of its own
  for.
- There are no folders: `makedirs` and `rmdir` ask nothing, and never make or remove a bucket.
- Listings are not cached, as other processes write.

Multipart uploads are made step by step, so that one process uploads the parts and another one, later,
completes the object. Nothing of an upload is visible before; it costs storage until it is completed or
aborted.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator, Sequence
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from fsspec.asyn import sync_wrapper
from s3fs import S3FileSystem

from unistream.base.s3_upload import Upload

CONFLICTS_MAX: Final = 6  # a conditional write that meets another one under way; it is over in milliseconds
CONFLICT_PAUSE_S: Final = 0.1  # before the second attempt, doubled before each further one
EXISTS: Final = "PreconditionFailed"
CONFLICT: Final = frozenset({"ConditionalRequestConflict", "OperationAborted"})
NO_UPLOAD: Final = "NoSuchUpload"
NO_BUCKET: Final = "NoSuchBucket"


class S3Files(S3FileSystem):  # type: ignore[misc]  # s3fs has no types
    """See the module."""

    cachable = False  # fsspec would keep one for each thread; `object_stores` keeps one for each process
    retries = 2  # of an answer that breaks off; botocore repeats requests

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"use_listings_cache": False, **options})

    async def _call_s3(self, method: str, *args: Any, **kwargs: Any) -> Any:
        conditional = "IfNoneMatch" in kwargs
        for attempt in range(CONFLICTS_MAX):
            try:
                return await super()._call_s3(method, *args, **kwargs)
            except OSError as error:
                code = _code(error)
                if conditional and code == EXISTS:
                    raise FileExistsError(errno.EEXIST, "exists already", kwargs.get("Key")) from error
                if not conditional or code not in CONFLICT or attempt == CONFLICTS_MAX - 1:
                    raise
            except (BotoCoreError, HTTPClientError, ClientError) as error:
                raise OSError(errno.EIO, str(error) or type(error).__name__) from error
            await asyncio.sleep(CONFLICT_PAUSE_S * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    call_s3 = sync_wrapper(_call_s3)  # that of s3fs calls its own method

    async def _mkdir(self, path: str, acl: bool = False, create_parents: bool = True, **kwargs: Any) -> None:
        """Nothing: there are no folders, and buckets are made by those who pay for them."""

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Does nothing: a store has no folders."""

    async def _rmdir(self, path: str) -> None:
        """Does nothing: a store has no folders."""

    def rmdir(self, path: str) -> None:
        """Does nothing: a store has no folders."""

    def mkdir(self, path: str, acl: bool = False, create_parents: bool = True, **kwargs: Any) -> None:
        """Does nothing: a store has no folders."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Does nothing: a store has no folders."""

    def object_size(self, path: str) -> int | None:
        """Bytes; None: there is no such object. One request, where `info` also looks for a folder.

        Raises:
            OSError: the store refused, or did not answer.
        """
        bucket, key, _ = self.split_path(path)
        try:
            return int(self.call_s3("head_object", Bucket=bucket, Key=key)["ContentLength"])
        except FileNotFoundError:
            return None

    @staticmethod
    def lacks_bucket(error: OSError) -> bool:
        """The bucket does not exist, or was removed."""
        return _code(error) == NO_BUCKET

    # --- multipart uploads ------------------------------------------------------------------------

    def begin_upload(self, path: str) -> Upload:
        """Begins an upload to a path that nobody else has. A request that was repeated, since its answer was
        lost, has begun two, of which one is known; `has_upload` aborts the other.

        Raises:
            OSError: there may be an upload (`abort_uploads`).
        """
        bucket, key, _ = self.split_path(path)
        return Upload(path, str(self.call_s3("create_multipart_upload", Bucket=bucket, Key=key)["UploadId"]))

    def has_upload(self, upload: Upload) -> bool:
        """It can be completed: it is neither completed nor aborted. Others to its path, which have lost their
        answer, are aborted. Raises OSError."""
        found = [one for one in self.uploads(upload.path) if one.path == upload.path]
        for other in found:
            if other != upload:
                self.abort_upload(other)
        return upload in found

    def abort_uploads(self, path: str) -> None:
        """All to this very path. Raises OSError."""
        for upload in list(self.uploads(path)):
            if upload.path == path:
                self.abort_upload(upload)

    def upload_part(self, upload: Upload, number: int, content: bytes) -> str:
        """Stores part `number`, from 1; may be repeated. Returns its tag, which `complete_upload` takes.

        Raises:
            FileNotFoundError: the upload was aborted.
            OSError: it may or may not be stored.
        """
        bucket, key, _ = self.split_path(upload.path)
        answer = self.call_s3(
            "upload_part", Bucket=bucket, Key=key, UploadId=upload.id, PartNumber=number, Body=content
        )
        return str(answer["ETag"])

    def complete_upload(self, upload: Upload, tags: Sequence[str]) -> None:
        """Makes the object of its parts, at once.

        Raises:
            FileNotFoundError: there is no such upload (any more): it is completed or aborted.
            OSError: the outcome is unknown.
        """
        bucket, key, _ = self.split_path(upload.path)
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
        try:
            self.call_s3(
                "complete_multipart_upload",
                Bucket=bucket,
                Key=key,
                UploadId=upload.id,
                MultipartUpload={"Parts": parts},
            )
        except OSError as error:
            if _is_gone(error):
                raise FileNotFoundError(errno.ENOENT, f"no upload {upload.id}", upload.path) from error
            raise

    def abort_upload(self, upload: Upload) -> None:
        """Frees its parts; fine if it is gone. Raises OSError."""
        bucket, key, _ = self.split_path(upload.path)
        try:
            self.call_s3("abort_multipart_upload", Bucket=bucket, Key=key, UploadId=upload.id)
        except OSError as error:
            if not _is_gone(error):
                raise

    def uploads(self, prefix: str) -> Iterator[Upload]:
        """The uploads of all objects below a path that are not completed. Raises OSError."""
        bucket, key, _ = self.split_path(prefix)
        marker: dict[str, Any] = {}
        while True:
            answer = self.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=key, **marker)
            for found in answer.get("Uploads") or ():
                yield Upload(f"{bucket}/{found['Key']}", str(found["UploadId"]))
            if not answer.get("IsTruncated"):
                return
            marker = {
                "KeyMarker": answer["NextKeyMarker"],
                "UploadIdMarker": answer.get("NextUploadIdMarker", ""),
            }


def _code(error: BaseException) -> str:
    """What the store called it; empty: it did not answer."""
    cause = error.__cause__
    return str(cause.response["Error"].get("Code", "")) if isinstance(cause, ClientError) else ""


def _is_gone(error: OSError) -> bool:
    """The store does not know the upload."""
    return isinstance(error, FileNotFoundError) or _code(error) == NO_UPLOAD
