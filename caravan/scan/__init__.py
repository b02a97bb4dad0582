"""Existing rows are read in chunks, and each chunk enters the log of the lead caravan at one exact place.

``rounds`` chooses what is read next, ``window`` notes the log beside a chunk, ``bring_forward`` makes its rows those of
the place where it enters (``entering``), ``catalog`` knows the tables, and ``scanner`` does it.
"""
