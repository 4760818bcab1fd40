"""`python -m unistream.worker`: see `unistream.worker.process.entry_point`."""

import sys

from unistream.base.allocator import choose_allocator

choose_allocator()

from unistream.worker.process import main  # noqa: E402  (loads Arrow)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
