"""The noun ``flows``, and ``flows dead-letters``."""
