"""What our own tests drive the product with: cases of Flink, planted bugs, masters, whole tasks, servers."""
