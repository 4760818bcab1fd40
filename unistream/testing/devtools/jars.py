"""Where the jars of the local stack come from: Maven for Kafka, the installed pyspark for ZooKeeper."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Final

from unistream.base.errors import ConfigError, Unreachable
from unistream.base.extras import require
from unistream.testing.devtools.process import file_lock

CACHE_VARIABLE: Final = "UNISTREAM_CACHE"
COMPLETE: Final = ".complete"  # written last; holds the checksum of the pom that the jars are of
DOWNLOAD_TIMEOUT_S: Final = 600
ZOOKEEPER_JARS: Final = (
    *("zookeeper-*", "slf4j-api-*", "log4j-*", "snappy-java-*", "metrics-core-*"),
    *("netty-common-*", "netty-buffer-*", "netty-transport-*", "netty-handler-*", "netty-resolver-*"),
    *("netty-codec-base-*", "commons-io-*"),  # those, and Netty, for logins by SASL
)
_POM: Final = "{http://maven.apache.org/POM/4.0.0}"


def cache_dir() -> Path:
    """$UNISTREAM_CACHE, else ``~/.cache/unistream``."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "unistream")


def java() -> str:
    """Path of the java command: $JAVA_HOME's, else the one on the path."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    return found or _command("java", "Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless)")


def kafka_pom() -> Path:
    """The pom that pins the broker: of the source tree, or inside the installed package."""
    package = Path(__file__).resolve().parents[2]
    places = (package.parent / "deployments/local/kafka/pom.xml", package / "_deploy/kafka/pom.xml")
    for place in places:
        if place.is_file():
            return place
    raise ConfigError(f"the Kafka broker's pom.xml is missing; looked for {places[0]} and {places[1]}")


def kafka_version(pom: Path) -> str:
    version = ET.parse(pom).findtext(f"{_POM}properties/{_POM}kafka.version")  # noqa: S314  (our own file)
    if not version:
        raise ConfigError(f"{pom} has no property kafka.version")
    return version.strip()


def kafka_jars() -> Path:
    """Folder with the broker's jars, downloaded when they are not in the cache yet.

    Raises:
        ConfigError: mvn is not installed, or Maven cannot resolve the pom (its last lines are shown).
        Unreachable: the download did not end within DOWNLOAD_TIMEOUT_S.
    """
    pom = kafka_pom()
    fingerprint = hashlib.sha256(pom.read_bytes()).hexdigest()
    folder = cache_dir() / f"kafka-{kafka_version(pom)}"
    if _is_complete(folder, fingerprint):
        return folder
    with file_lock(folder.with_name(folder.name + ".lock")):
        if not _is_complete(folder, fingerprint):
            _download(pom, folder, fingerprint)
    return folder


def zookeeper_jars() -> list[Path]:
    """The jars inside the installed pyspark that a ZooKeeper server needs.

    Raises:
        ConfigError: pyspark is not installed, or comes without ZooKeeper.
    """
    require("spark", "the local ZooKeeper (it runs on Spark's jars)")
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None, "it is installed"
    assert spec.submodule_search_locations, "it is a package"
    folder = Path(spec.submodule_search_locations[0]) / "jars"
    jars = sorted(jar for pattern in ZOOKEEPER_JARS for jar in folder.glob(pattern + ".jar"))
    if not any(jar.name.startswith("zookeeper-") for jar in jars):
        raise ConfigError(f"no ZooKeeper jars in {folder}; install pyspark 4 from its wheel")
    return jars


def _is_complete(folder: Path, fingerprint: str) -> bool:
    mark = folder / COMPLETE
    return mark.is_file() and mark.read_text(encoding="utf-8") == fingerprint


def _download(pom: Path, folder: Path, fingerprint: str) -> None:
    """Downloads the jars into a folder next to it, then renames that: never visible in part."""
    mvn = _command("mvn", "Maven 3.6 or newer (Debian: apt-get install maven)")
    with tempfile.TemporaryDirectory(prefix=".kafka-", dir=folder.parent) as work:
        own_pom = Path(work) / "pom.xml"
        shutil.copyfile(pom, own_pom)  # Maven never writes next to ours
        jars = Path(work) / "jars"
        _maven(mvn, own_pom, jars)
        (jars / COMPLETE).write_text(fingerprint, encoding="utf-8")
        if folder.exists():
            folder.rename(Path(work) / "old")
        jars.rename(folder)


def _maven(mvn: str, pom: Path, jars: Path) -> None:
    arguments = ["-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    arguments += [f"-DoutputDirectory={jars}", "-DincludeScope=runtime"]
    try:
        done = subprocess.run(
            [mvn, *arguments], capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unreachable(f"Maven did not download Kafka's jars within {DOWNLOAD_TIMEOUT_S} s") from None
    if done.returncode != 0 or not any(jars.glob("kafka_*.jar")):
        said = "\n  ".join((done.stdout + done.stderr).strip().splitlines()[:6])
        raise ConfigError(f"Maven could not download the Kafka broker's jars:\n  {said}")


def _command(name: str, what: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ConfigError(f"{name} is not on the path; install {what}")
    return found
