"""Clusters of other processes, over REST: which call is sent again and until when, and what it has answered.

Decides how long a client waits and what it repeats (`policy`, pure). May import: `machine`, `model`, `base`,
and no master. Start with `rest_client`.
"""
