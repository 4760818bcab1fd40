"""Everything that speaks to brokers: the only room that imports kafka-python, but for its errors.

`client` is what a source asks, `calls` and `wire` what a sink asks, `private` and `receive` the private names
of the library. May import: `record`. Start with `client`.
"""
