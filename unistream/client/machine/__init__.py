"""What is on this machine for this user: entries of clusters, their folders, the history of their jobs.

Decides nothing of a job that runs. May import: what reads the database and stored jobs (`metadata`,
`master`), `model`, `base`. Start with `home`.
"""
