"""Tests with other versions of what we depend on than the lock's, which nobody has who installs us by pip.

    python -m tests.versions                 both of EDGES
    python -m tests.versions oldest WORD…    one of them; WORD…: for pytest, instead of what a night runs

Each has an environment of its own in the cache folder, ``versions/EDGE``, which is brought up to date. The
lock is neither read nor written. The tools that run the tests are the newest in both. Libraries meet that
nobody has tested together, and warn of each other: such a warning is shown at the end, and fails nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

EDGES: Final = {"oldest": "lowest-direct", "newest": "highest"}
"""Of the versions that pyproject.toml allows -> how uv calls their choice."""

ROOT: Final = Path(__file__).parents[1]
SHOWN: Final = tuple(
    word
    for kind in ("DeprecationWarning", "PendingDeprecationWarning", "ResourceWarning")
    for word in ("-W", f"default::{kind}")
)
"""PySpark 4.0 leaves the sockets of its results to the garbage collector."""

FAST: Final = ("tests/unit", "tests/contract")
CONNECTORS: Final = (
    "tests/integration/test_kafka_source.py::test_bounded_reads_all_rows_once_in_order_and_ends",
    "tests/integration/test_kafka_formats.py::test_avro_keys_and_values_into_a_table_and_what_cannot_be_read",
    "tests/integration/test_kafka_sink.py::test_in_batch_all_rows_come_at_the_end",
    "tests/integration/test_delta_source.py::test_what_a_sink_wrote_is_read",
    "tests/integration/test_sinks_exactly_once.py::test_a_kill_in_the_final_phase_loses_and_doubles_nothing",
    "tests/integration/test_guide_pages.py::test_a_page_is_typed[iceberg]",
    "tests/integration/test_guide_pages.py::test_a_page_is_typed[sql]",
    "tests/integration/test_object_store.py::test_a_savepoint_moves_from_the_disk_to_the_store_and_back",
    "tests/integration/test_dead_letter_replay.py::test_the_story_of_a_stranger",
    "tests/integration/test_several_masters_type.py",
    "tests/integration/test_batch_on_spark.py::test_a_job_is_one_spark_job_with_readable_stages_and_its_commit",
    "tests/integration/test_dagster_runs.py::test_a_bounded_pipeline_materialises_its_assets",
)
"""One job or a few of each connector, of high availability, Spark and Dagster."""


def python_of(edge: str) -> Path:
    """The interpreter of an environment that holds these versions now. Raises CalledProcessError."""
    folder = Path(os.environ["UNISTREAM_CACHE"]) / "versions" / edge
    folder.parent.mkdir(parents=True, exist_ok=True)
    python, chosen = folder / "bin" / "python", folder.parent / f"{edge}.txt"
    if not python.exists():
        _uv("venv", "--quiet", "--python", sys.executable, str(folder))
    of_python = ("--python-version", f"{sys.version_info.major}.{sys.version_info.minor}")
    _uv("pip", "compile", "--quiet", "--upgrade", "--no-header", *of_python, "--all-extras", "pyproject.toml",
        "--resolution", EDGES[edge], "--output-file", str(chosen))  # fmt: skip
    _uv("pip", "install", "--quiet", "--python", str(python), "--requirement", str(chosen),
        "--group", "dev", "--editable", ".")  # fmt: skip
    subprocess.run([python.with_name("unistream"), "connectors", "compile"], cwd=ROOT, check=True)
    return python


def run(edge: str, words: Sequence[str] = ()) -> bool:
    """Whether all tests have passed with these versions."""
    python = python_of(edge)
    given = [tuple(words)] if words else [("-n", "2", *FAST), ("-n", "2", *CONNECTORS)]
    with_its_tools = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    print(f"--- the {edge} versions: {python.parents[1]}.txt", flush=True)
    codes = [
        subprocess.run(
            [python, "-m", "pytest", "-q", *SHOWN, *part], cwd=ROOT, env=with_its_tools, check=False
        ).returncode
        for part in given
    ]
    return not any(codes)


def _uv(*words: str) -> None:
    subprocess.run([os.environ["UV"], *words], cwd=ROOT, check=True)


def main(words: list[str]) -> int:
    edges = [words[0]] if words else list(EDGES)
    passed = [run(edge, words[1:]) for edge in edges]  # the second one also where the first one fails
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
