"""The catalogue's facts about tables: identities, keys, the publication, and changes without a trace in the log."""
