"""Spark as another engine that reads and writes Delta and Iceberg tables, by their own jars.

These need a minor version of Spark that is older than that of the lock, and Maven Central: `SparkTables` has
an environment of its own in the cache folder, which is made by pip and Maven when it is first used. So tests
with it wait for the night (`tests/nightly.txt`), and need a network then.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from unistream.base.closing import Closing
from unistream.testing.devtools import cache_dir
from unistream.testing.devtools.process import file_lock

PACKAGES: Final = (
    "pyspark==4.1.0",
    "pyarrow>=18",
    "pandas>=2.2",
)  # the jars of pom.xml are those of this version
HERE: Final = Path(__file__).parent
END_S: Final = 120.0


class SparkTables(Closing):
    """A Spark that runs until it is closed. Its catalog ``lake`` is that of `properties`.

    Attributes:
        properties: The same Iceberg catalog for pyiceberg, and our sources and sinks; its name is ``lake``.
        deltas: A folder for Delta tables.
    """

    def __init__(self, folder: Path) -> None:
        warehouse, catalog = (folder / "warehouse").as_uri(), folder / "catalog.db"
        self.properties = {"type": "sql", "uri": f"sqlite:///{catalog}", "warehouse": warehouse}
        self.deltas = folder / "delta"
        self._folder = folder
        python, jars = environment()
        command = [python, HERE / "process.py", jars, warehouse, f"jdbc:sqlite:{catalog}"]
        self._log = (folder / "spark.log").open("w")
        self._process = subprocess.Popen(
            [*map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self._answer()

    def run(self, *statements: str) -> None:
        """Raises AssertionError: Spark refuses one."""
        for one in statements:
            self._ask(one, None)

    def rows(self, query: str) -> list[dict[str, Any]]:
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            self._ask(query, f"{place}/rows.arrow")
            return list(pa.ipc.open_file(f"{place}/rows.arrow").read_all().to_pylist())

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(END_S)
        self._process.stdout.close()
        self._log.close()

    def _ask(self, statement: str, file: str | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([statement, file]) + "\n")
        self._process.stdin.flush()
        error = self._answer()
        assert error is None, f"{statement}: {error}"

    def _answer(self) -> str | None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"error"'):  # others are of Spark's own programs
                found: str | None = json.loads(line)["error"]
                return found
        raise AssertionError((self._folder / "spark.log").read_text()[-2_000:])


def environment() -> tuple[Path, Path]:
    """An interpreter with that Spark, and the folder of the jars.

    Raises:
        CalledProcessError: they are not to be had.
    """
    folder = cache_dir() / "spark-tables"
    python, jars, done = folder / "bin" / "python", folder / "jars", folder / "complete"
    made_of = "\n".join([*PACKAGES, (HERE / "pom.xml").read_text()])
    with file_lock(folder.with_name(folder.name + ".lock")):
        if not done.is_file() or done.read_text() != made_of:
            shutil.rmtree(folder, ignore_errors=True)
            _command(sys.executable, "-m", "venv", folder)
            _command(python, "-m", "pip", "install", "--quiet", *PACKAGES)
            shutil.copyfile(HERE / "pom.xml", folder / "pom.xml")
            resolve = ("dependency:copy-dependencies", f"-DoutputDirectory={jars}", "-DincludeScope=runtime")
            _command("mvn", "-q", "-B", "-f", folder / "pom.xml", *resolve)
            done.write_text(made_of)
    return python, jars


def _command(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True)


def same_rows(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Rows in an order and a form in which those of two engines can be compared: a time with a zone is a
    moment, NaN is NaN, and -0.0 is another value than 0.0."""
    return sorted(repr(sorted((name, _plain(value)) for name, value in row.items())) for row in rows)


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: _plain(one) for name, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case float() if math.isnan(value):
            return "NaN"
        case dt.datetime() if value.tzinfo is not None:
            return value.astimezone(dt.UTC).isoformat()
    return value
