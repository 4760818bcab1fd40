"""Every sink with a committer against every way in which it can be used, and in which it can be disturbed.

    rig       what a sink shows of itself: its ways, the values that it takes, what others do to its target
    rigs/     one for each sink
    model     what has to be there afterwards, in plain Python
    play      one combination: a table, checkpoints, others, a death, and what every reader finds

A new sink is one more file in `rigs`, and one more line in `rigs.every.RIGS`.
"""
