"""Submitting and controlling jobs: on a cluster in this process, or on another one over REST.

    job         from a graph to a running job, and what is done with it until it has ended
    embedded    a cluster in this process: its master, its workers, its part in the election
    remote      clusters of other processes, over REST
    machine     what is on this machine for this user: clusters, their folders, the history of jobs

`job` and `remote` import no master: what goes over REST stands in `model`. The rooms have no faces: an import
names the module, so that a command loads only what it uses. Start with `job/submission.py`.
"""
