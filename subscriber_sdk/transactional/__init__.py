"""Effects exactly once: a database transaction of the application between two datamarkers, with the datamarker in it.

::

    subscriber    the callbacks that the SDK calls, for a handler (handler: the class that an application overrides)
    shard         one shard's transactions
    marker_row    pure: what follows from the row of a shard in the table wormhole_marker
    sql           the statements, and what differs among databases
    store         the port of a database; psycopg, sqlalchemy and django implement it, each with its driver

docs/transactional.md is the page for users.
"""

from subscriber_sdk.transactional.handler import TransactionalHandler
from subscriber_sdk.transactional.store import Store
from subscriber_sdk.transactional.subscriber import Transactional

__all__ = ["Store", "Transactional", "TransactionalHandler"]
