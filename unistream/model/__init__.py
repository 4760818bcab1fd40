"""Graphs, elements, messages, snapshots and jobs as plain data: it decides nothing. What is computed from
columns of rows stands in `columns`. May import: `base`. Start with `graph` (a job before it runs), `messages`
(between its master and its workers) and `job_info` (what clients see of it).
"""
