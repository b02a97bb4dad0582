"""The noun ``hosts`` and the command ``drain``: list the hosts of an installation, and stop their publishers."""
