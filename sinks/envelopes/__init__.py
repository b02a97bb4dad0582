"""The JSON documents of updates.

::

    names       an envelope by its name
    wormhole    our own: everything that an update contains
    debezium    events of Debezium     (plain: what it shares with the next)
    maxwell     rows of Maxwell
    settings    the settings of kinds with records
"""

from sinks.envelopes.names import EnvelopeName, envelope_named

__all__ = ["EnvelopeName", "envelope_named"]
