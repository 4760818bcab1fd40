"""Pipelines that a cluster plans by itself: in a process of their own, which knows nothing of the cluster.

Decides: how a pipeline that was named becomes a job that can be started, or why it cannot. May import: what
users write, and savepoints. Start with `planned`.
"""
