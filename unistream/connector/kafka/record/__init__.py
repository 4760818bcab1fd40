"""Kafka's record batches as columns, and columns as record batches; the ids of a sink's transactions.

Pure, but for the compiled loops (`kernels`, `write_kernels`). May import: `connector.common`, `model`,
`base`. Start with `records`.
"""
