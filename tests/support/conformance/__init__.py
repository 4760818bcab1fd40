"""Runs cases that Flink computed against our own machines: `python -m tests.support.conformance`."""
