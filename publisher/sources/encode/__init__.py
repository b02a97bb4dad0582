"""What every source's encoder shares: pieces of log, and runs of updates by shard."""
