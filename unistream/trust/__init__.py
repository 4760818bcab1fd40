"""Certificates: the authority that a cluster makes for itself, and what it issues.

Knows no storage and no server: `storage.cluster_authority` keeps an authority, `net` and `rest` listen with
what it has issued. May import `model` and `base`. Begin with `authority.py`. `cryptography` is imported where
it is used: a cluster whose servers all listen on loopback addresses has no certificates.
"""
