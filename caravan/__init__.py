"""Caravans: one log reader and the flows that travel with it.

``plan`` decides (pure: places, rates and limits in, actions out). ``fleet`` carries out the actions. ``caravan`` reads
and keeps the change buffer. ``flow`` is one flow's filter, place and resume point. ``backfill`` is a flow's need of
existing rows, and ``scan`` reads them. Nothing here depends on gRPC or a datastore.
"""
