"""A pipeline in a `defs.yaml`. May import: all other rooms. Start with `component`."""
