"""`python -m unistream.testing.conformance PATH…`, in a checkout: plays cases that Flink computed.

The adapters are support of our own tests, and no part of the wheel: `tests/support/conformance`.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    """Returns the exit code: 1 when a case failed or none was played, 2 when a path or the place is wrong."""
    checkout = Path(__file__).parents[2]
    if not (checkout / "tests" / "support" / "conformance").is_dir():
        sys.stderr.write(f"error: cases are played in a checkout of unistream, and {checkout} is none\n")
        return 2
    sys.path.insert(0, str(checkout))
    from tests.support.conformance.__main__ import main as play

    return play()


if __name__ == "__main__":
    sys.exit(main())
