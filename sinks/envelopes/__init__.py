"""The JSON documents of updates.

::

    names       an envelope by its name
    wormhole    our own: everything that an update contains
    settings    the settings of kinds with records
"""

from sinks.envelopes.names import ENVELOPES, EnvelopeName, envelope_named

__all__ = ["ENVELOPES", "EnvelopeName", "envelope_named"]
