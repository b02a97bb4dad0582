"""PostgreSQL as a datastore: reads its log by logical decoding, with the server's output plugin pgoutput."""
