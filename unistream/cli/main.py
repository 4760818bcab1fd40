"""The `unistream` command.

Exit codes: 0 done, 1 the job failed, 2 bad input, 3 a cluster or system does not answer or its outcome is not
known, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from unistream.base.errors import UnistreamError
from unistream.cli.errors import BAD_INPUT, INTERRUPTED, OK, complain, exit_code, report, sentence

CONFIG_OPTION: Final = "--config"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; the console script exits with it."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        from unistream.cli.commands import app  # here, so that Ctrl-C while it is loaded is handled, too

        app(args=words, prog_name="unistream")
    except SystemExit as end:
        if end.code == BAD_INPUT and is_misplaced(CONFIG_OPTION, words):
            report(f"{CONFIG_OPTION} stands before the command: unistream {CONFIG_OPTION} PATH {words[0]} …")
        return end.code if isinstance(end.code, int) else OK
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except UnistreamError as error:
        complain(sentence(error))
        return exit_code(error)
    finally:
        _forget_file()
    return OK


def is_misplaced(option: str, words: Sequence[str]) -> bool:
    """Whether an option of all commands stands behind the name of one.

    >>> is_misplaced("--config", ["list", "--config=a"]), is_misplaced("--config", ["--config", "a", "list"])
    (True, False)
    """
    at = [number for number, word in enumerate(words) if word.partition("=")[0] == option]
    return bool(at) and not words[0].startswith("-")


def _forget_file() -> None:
    """The file of `--config` is that of one command, also where a program runs several."""
    surroundings = sys.modules.get("unistream.client.machine.surroundings")
    if surroundings is not None:
        surroundings.choose_file(None)


if __name__ == "__main__":
    sys.exit(main())
