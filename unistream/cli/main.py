"""The `unistream` command.

Exit codes: 0 done, 1 the job failed, 2 bad input, 3 a cluster or system does not answer or its outcome is not
known, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from unistream.base.errors import UnistreamError
from unistream.cli.errors import INTERRUPTED, OK, complain, exit_code, sentence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; the console script exits with it."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        from unistream.cli.commands import app  # here, so that Ctrl-C while it is loaded is handled, too

        app(args=words, prog_name="unistream")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else OK
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except UnistreamError as error:
        complain(sentence(error))
        return exit_code(error)
    return OK


if __name__ == "__main__":
    sys.exit(main())
