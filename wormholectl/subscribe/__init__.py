"""``wormholectl subscribe``: what an application receives, without being its subscriber."""
