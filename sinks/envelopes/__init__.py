"""The JSON documents of updates.

::

    names       an envelope by its name
    wormhole    our own form: everything that an update contains
    debezium    the form of Debezium's events     (plain: code that it shares with maxwell)
    maxwell     the form of Maxwell's rows
    settings    the settings of kinds with records
"""

from sinks.envelopes.names import EnvelopeName, envelope_named

__all__ = ["EnvelopeName", "envelope_named"]
