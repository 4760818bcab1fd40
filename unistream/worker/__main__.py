"""`python -m unistream.worker`: see `unistream.worker.main`."""

import os
import sys

if sys.platform == "linux":  # before Arrow is loaded; its own choice keeps more and more (memory-model.md)
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")

from unistream.worker.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
