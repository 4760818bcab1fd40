"""What looks at streams without running them: checks, the commit sensor, runs whose host has died.

Decides whether a stream is healthy (`judging`) and which partitions are closed (`closing_partitions`): pure.
May import: `operation`, `run`. Start with `commit_sensor`.
"""
