"""Submitting and controlling jobs: on a cluster in this process, or on another one over REST."""
