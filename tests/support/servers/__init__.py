"""Servers that our own tests alone start: several brokers, brokers with users, several ZooKeepers."""
