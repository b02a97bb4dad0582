"""Existing rows as a flow sees them: nothing here knows a caravan.

``boundaries`` numbers the keys where chunks ended, ``progress`` is what one flow still needs (kept in its datamarker as
``encoding`` says), and ``changes`` finds the rows that a run of updates takes back.
"""
