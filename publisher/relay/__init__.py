"""A bounded record of a log, on the publisher's own disk: who is behind reads it, and not the database."""
