"""Tracks which existing rows of its tables a flow still has to send. Nothing here depends on a caravan.

``boundaries`` numbers the keys where chunks ended. ``progress`` is what one flow still needs, kept in its datamarker in
the form of ``encoding``. ``changes`` finds the sent rows that a run of updates invalidates.
"""
