"""One file for each sink; `every` has them all."""
