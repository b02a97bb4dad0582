"""``wormholectl init``: examines a datastore, and writes a configuration, a subscriber and its test that fit it."""
