"""`unistream backfill`: results of a range of time are computed again from the history of a stream, and
replaced in its table.

    pipeline    what of a pipeline is computed again, and the BATCH job that does it
    coverage    whether the history has the events of the range
    journal     the durable record of what is done, and the lock of a job
    jobs        the running job: stop, resume, and where
    staging     the new rows in files
    run         performs what `core.backfill` decides

May import: `api`, `client`, `savepoint` and what is below. Start with `run`.
"""
