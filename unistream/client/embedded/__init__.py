"""A cluster in this process: the master here, workers where the target says.

Decides who leads when there are several (`contending`), and what a process has only while it leads
(`leader_process`). The only room that runs a master. May import: `remote`, `machine`, `master`, `host`,
`rest`, `ha`. Start with `embedded_cluster`.
"""
