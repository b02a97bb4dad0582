"""Applies updates to the application's database exactly once: each transaction also stores the datamarker.

::

    subscriber    the callbacks that the SDK calls, for a handler (handler: the class that an application overrides)
    shard         one shard's transactions
    marker_row    pure: decides from a shard's row in the table wormhole_marker where delivery begins
    sql           the statements on that table, for each kind of database
    store         the port of a database; psycopg, sqlalchemy and django implement it, each with its driver

docs/transactional.md is the page for users.
"""

from subscriber_sdk.transactional.handler import TransactionalHandler
from subscriber_sdk.transactional.store import Store
from subscriber_sdk.transactional.subscriber import Transactional

__all__ = ["Store", "Transactional", "TransactionalHandler"]
