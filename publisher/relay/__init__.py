"""The relay: a bounded copy of a log on the publisher's disk. Flows that are behind read it instead of the database."""
