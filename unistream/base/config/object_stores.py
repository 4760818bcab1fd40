"""Object stores that speak S3: where they are, and who the cluster is there."""

from __future__ import annotations

from typing import Final

from unistream.base.config.parsing import Bytes, ConfigOption, Duration, WholeNumber, parse_bool
from unistream.base.limits import MIB

S3_ENDPOINT: Final = ConfigOption(
    "s3.endpoint",
    str,
    None,
    "URL of the store, such as https://minio.example:9000; unset: Amazon's, or what AWS_ENDPOINT_URL says.",
)
S3_ACCESS_KEY: Final = ConfigOption(
    "s3.access-key",
    str,
    None,
    "Name of the credentials, best a reference such as ${env:S3_ACCESS_KEY}; unset: as Amazon's libraries "
    "find them (AWS_ACCESS_KEY_ID, ~/.aws, the role of the machine).",
    secret=True,
)
S3_SECRET_KEY: Final = ConfigOption(
    "s3.secret-key",
    str,
    None,
    "Secret of the credentials, best a reference such as ${file:/run/secrets/s3}.",
    secret=True,
)
S3_REGION: Final = ConfigOption(
    "s3.region",
    str,
    None,
    "Region of the buckets; unset: as Amazon's libraries find it, or us-east-1 if s3.endpoint is set.",
)
S3_PATH_STYLE: Final = ConfigOption(
    "s3.path.style.access",
    parse_bool,
    "false",
    "Buckets are in the path of a URL, not in the name of its host; most stores of one's own need it.",
)
S3_TIMEOUT: Final = ConfigOption(
    "s3.connection.timeout",
    Duration(100),
    "15 s",
    "Longest wait for a connection to the store, and for the next bytes of an answer.",
)
S3_ATTEMPTS: Final = ConfigOption(
    "s3.attempts.maximum",
    WholeNumber(1, 100),
    "5",
    "How often a request is sent before it has failed, if the store is too busy (503 SlowDown), does not "
    "answer, or breaks the connection; with growing pauses of at most 20 s.",
)
S3_PART_SIZE: Final = ConfigOption(
    "s3.upload.min.part.size",
    Bytes(5 * MIB, 5 * 1024 * MIB),
    "8 mb",
    "Bytes of a part of a multipart upload (the last one is smaller); stores take 10,000 parts of at least "
    "5 MiB.",
)
