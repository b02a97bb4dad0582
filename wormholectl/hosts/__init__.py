"""The noun ``hosts`` and the verb ``drain``."""
