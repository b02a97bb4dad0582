"""The nouns ``flows`` and ``flows dead-letters``: list and change the flows of applications."""
