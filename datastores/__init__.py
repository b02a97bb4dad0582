"""A folder for each kind of datastore, with everything about it. ``common`` has the parts that they share.

Nothing imports a datastore's folder: `wormhole.config.datastores` loads it by the scheme of a URL.
"""
