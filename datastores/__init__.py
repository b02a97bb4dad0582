"""One folder for each kind of datastore, with everything about it; ``common``: what they share.

Nothing imports a datastore's folder: `wormhole.config.datastores` loads it by the scheme of a URL.
"""
