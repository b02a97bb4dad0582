"""The WAL files of one history of a database: found, kept from deletion, and proven to continue."""
