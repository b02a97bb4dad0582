"""``wormholectl tail``: a log's updates as they are committed."""
