"""The master of a cluster and of its jobs: shells around the machines of `core`.

    cluster    takes jobs, starts them again under a new leader
    job        one job: its mailbox, its storage, its record
    service    slots, messages to workers, the job metadata
    shown      ended jobs, workers and the cluster, for people
    store      what the next leader finds
    loop       threads

Rooms are closed: what others may use stands in their faces. Start with `cluster`.
"""
