"""Wormhole pub-sub: every committed change of a database, pushed to the services that asked for it.

The way of one update, top to bottom; each edge has one type::

    datastore log
       |  datastores/*                reads the log from a place        -> Segment
       |  datastores/*/decode         pure: records -> encoded updates
       |  caravan/caravan             one reader, many flows; change buffer
       |  caravan/flow                this flow's filter, credit, place -> batch bodies
       |  wormhole/push/session       pure: which frame is sent next, what an answer means
       |  publisher/push/stream       one gRPC stream per subscriber
       v  --------------------- network ---------------------
       |  subscriber_sdk/server/push_server  the gRPC service that the publisher dials
       |  subscriber_sdk/stream/session      pure: epochs, order, duplicates
       |  subscriber_sdk/work/flow_worker    the user's callback
       v
          subscriber_sdk/work/acks           pure: finished work -> highest contiguous place
    datamarkers travel back: acks -> session -> flow -> publisher/stores/markers (durable)

The layers of this package, from the bottom: ``problems``, ``model`` and ``metrics``; ``wire`` and ``formats``;
``ports``, ``audit`` and ``filters``; ``config``; ``host``; ``coordination``; ``push``; ``admin``. Each imports only
lower ones.

The permitted imports between packages of the project: ``wormhole`` imports none. ``caravan``, ``datastores``,
``subscriber_sdk`` and ``monitor`` import ``wormhole``; ``publisher`` also ``caravan``; ``spark_replay`` also
``subscriber_sdk``. ``wormholectl`` imports all but ``datastores`` and ``spark_replay``, when a command needs them.
import-linter checks this (``pyproject.toml``).
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - pip refuses it, a checkout in the path does not
    raise ImportError(
        f"wormhole-pubsub needs Python 3.11 or later, and this is {'.'.join(map(str, sys.version_info[:3]))}. "
        "Next: install it into an environment of a later Python"
    )

__version__ = "0.1.0"
__all__ = ["__version__"]
