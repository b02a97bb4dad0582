"""SQLite: a log that triggers make in the database itself, and the record of it that the publisher keeps."""
