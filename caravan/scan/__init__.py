"""Reads existing rows in chunks. Each chunk enters the log of the lead caravan at one exact place.

``rounds`` chooses what is read next. ``window`` records the log beside a chunk. ``bring_forward`` updates the chunk's
rows to the place where it enters (``entering``). ``catalog`` has the tables. ``scanner`` carries out all of this.
"""
