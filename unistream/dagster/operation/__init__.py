"""What is done with running jobs: schedules that stop, save or drain them, and backfills.

May import: `run`. Start with `operations`.
"""
