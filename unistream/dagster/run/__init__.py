"""One run and its job: assets and their metadata, how a run comes to its job, and how the job ends with it.

Decides what ends with a run (`attached`) and which run watches a job (`watching`). May import: no other room.
Start with `resource`.
"""
