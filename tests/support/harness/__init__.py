"""Harnesses of our own tests: `task` steps all tasks of a job, `stages` runs a BATCH job without an engine,
`source_driver` drives a reader; `services` are the storage and the environment of tasks.
"""
