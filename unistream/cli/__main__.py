"""`python -m unistream.cli` is the command `unistream`."""

from unistream.cli.main import main

main()
