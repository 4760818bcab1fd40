"""`python -m unistream.cli` is the command `unistream`."""

import sys

from unistream.cli.main import main

sys.exit(main())
