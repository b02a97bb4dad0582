"""Reads the catalogue's facts about tables: identities, keys, the publication, and changes that the log does not
show."""
