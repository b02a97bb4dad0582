"""The noun ``tokens``: manages the tokens with which subscribers dial publishers."""
