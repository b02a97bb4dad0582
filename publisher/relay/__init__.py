"""A bounded record of a log, on the publisher's own disk. Flows that are behind read it instead of the database."""
