"""Flows: which flows exist, which subscriber receives each flow, what is stored about it, and what happens when it
cannot continue. A flow is one shard of a log for one application.

Each module is one rule or one store. Most modules use ``PublisherFlow``.
"""
