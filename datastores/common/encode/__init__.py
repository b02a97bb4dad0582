"""Parts that the encoders of all datastores share: buffers of encoded updates, and their split by shard."""
