"""Caravans: each is one reader of a datastore's log, shared by several flows.

``plan`` decides what to do. ``fleet`` carries out its actions. ``caravan`` reads the log into its change buffer.
``flow`` is one flow's filter, place and resume point. ``backfill`` records which existing rows a flow still needs, and
``scan`` reads them. Nothing here depends on gRPC or a datastore.
"""
