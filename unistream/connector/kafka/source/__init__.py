"""Kafka as a source: splits are partitions, positions are offsets, and both stand in checkpoints.

Decides which partitions there are and where each begins (`discovery`). May import: `format`, `broker`,
`record`. Start with `source`.
"""
