"""Compares the rows of the source with the rows that the application holds, for ``wormholectl verify``."""
