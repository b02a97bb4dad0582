"""SQLite as a datastore: triggers record changes in the database, and the publisher keeps a record of its own."""
