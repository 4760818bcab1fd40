"""`python -m unistream.worker`: see `unistream.worker.main`."""

import sys

from unistream.worker.allocator import choose_allocator

choose_allocator()

from unistream.worker.main import main  # noqa: E402  (loads Arrow)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
