"""The noun ``config``: files, what is stored, and who changed that."""
