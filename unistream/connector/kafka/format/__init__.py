"""How the bytes of records become the columns of a schema: JSON, Avro, Protocol Buffers, Debezium, Connect.

Decides what a bad record is (`decode`) and which column is of the value, the key, or Kafka (`layout`). May
import: `record`, `connector.common`. Start with `decode`.
"""
