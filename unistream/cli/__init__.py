"""The commands. `unistream taskmanager start` is a worker, and Arrow is loaded with the first command."""

from unistream.base.allocator import choose_allocator

choose_allocator()
