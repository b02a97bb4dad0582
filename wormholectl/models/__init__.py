"""``wormholectl models``: Python classes of a database's tables."""
