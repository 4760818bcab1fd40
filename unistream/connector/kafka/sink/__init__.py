"""Kafka as a sink: one transaction of each subtask and checkpoint, ended by the committer.

Decides which job of a line may commit (`sink_line`) and which rows a topic would refuse (`row_check`). May
import: `format`, `broker`, `record`. Start with `sink`.
"""
