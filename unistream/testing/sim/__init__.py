"""A whole cluster in one thread from one seed; see docs/guide/simulation.md."""
