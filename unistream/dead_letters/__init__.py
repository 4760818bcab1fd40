"""`unistream dead-letters`: what is in a table of dead letters, and their rows processed again.

    table     the letters, from a Delta table or a folder of Parquet files
    ledger    next to them, durable: which were replayed, and replays that have begun
    graph     of a pipeline the part that a replay runs: from the operator that failed to the sinks
    listing   what is in a table, for people; `reading_process` for a JobManager, in a process of its own
    corrections  of rows, before they are replayed: a file
    replay    one replay, from the choice of the letters to its end; goes on after a kill

May import: `api`, `client`, `savepoint` and what is below. Start with `replay`.
"""
