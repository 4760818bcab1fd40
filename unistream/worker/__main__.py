"""See `unistream.worker.main`."""

import sys

from unistream.worker.main import main

sys.exit(main(sys.argv[1:]))
