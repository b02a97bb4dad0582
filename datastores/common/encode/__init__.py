"""Parts that the encoders of all datastores share: pieces of a log, and runs of updates by shard."""
