"""What the catalogue has of the tables: identities, keys, the publication, and changes without a trace in the log."""
