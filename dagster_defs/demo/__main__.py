"""The main job, end to end, on this machine: `make demo`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from dagster_defs.demo.interrupts import Interrupts
from dagster_defs.demo.processes import DemoError
from dagster_defs.demo.run import DemoOptions, run
from unistream.base.errors import UnistreamError


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 = the table equals the truth, 1 = it does not or something failed, 130 = Ctrl-C."""
    parser = argparse.ArgumentParser(description="Kafka -> Spark -> Delta, with a kill in the middle.")
    parser.add_argument("--target", choices=["spark", "local"], default="spark")
    parser.add_argument("--repeat", type=int, default=1, help="publish the year this many times")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long the producer takes")
    parser.add_argument("--keep", action="store_true", help="leave the stack and the Dagster UI running")
    parser.add_argument("--port", type=int, default=3000, help="of the Dagster UI that is left running")
    options = parser.parse_args(arguments)
    console = Console()
    interrupts = Interrupts()
    interrupts.install()
    try:
        report = run(
            DemoOptions(
                target=options.target,
                repeat=options.repeat,
                seconds=options.seconds,
                keep=options.keep,
                port=options.port,
            ),
            console,
            interrupts,
        )
    except (DemoError, UnistreamError) as error:
        console.print(f"demo failed: {error}", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted; everything that was started has been stopped")
        return 130
    console.print(report.last_line, markup=False, highlight=False, soft_wrap=True)
    return 0 if report.is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
