"""The command ``models``: writes Python classes for a database's tables."""
