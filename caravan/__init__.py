"""Caravans: one log reader and the flows that travel with it.

``plan`` decides (pure: places, rates and limits in, actions out); ``fleet`` carries out; ``caravan`` reads and keeps
the change buffer; ``flow`` is one flow's filter, place and resume point. ``backfill`` is what a flow needs of
existing rows, ``scan`` reads them. Nothing here knows gRPC or a datastore.
"""
