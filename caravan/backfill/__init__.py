"""Existing rows: tables are read in chunks, and each chunk enters the log of the lead caravan at one exact place.

``boundaries`` numbers the keys where chunks ended, ``progress`` is what one flow still needs, ``bring_forward`` makes
the rows of a chunk those of the place where it enters, ``window`` remembers the log in between, ``scanner`` reads.
"""
