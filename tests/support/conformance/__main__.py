"""`python -m tests.support.conformance PATH…`.

Exit code 1 when a case failed or none was played, 2 when a path is wrong.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from tests.support.conformance.files import find_cases
from tests.support.conformance.runner import report, run_cases
from unistream.base.errors import NotFound


def main(arguments: list[str] | None = None) -> int:
    """Runs all cases below the paths and prints the results; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.conformance",
        description="Run cases that Flink computed against the machines of unistream.",
    )
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="a JSON file, or a folder of them"
    )
    logging.getLogger("unistream").addHandler(logging.NullHandler())  # tasks that fail on purpose log there
    paths: list[Path] = parser.parse_args(arguments).paths
    try:
        outcome = run_cases(find_cases(paths))
    except NotFound as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write("".join(f"{line}\n" for line in report(outcome)))
    if not outcome.played:
        where = ", ".join(str(path) for path in paths)
        sys.stderr.write(f"error: no case was played: no file of {where} holds one that a machine reads\n")
        return 1
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
