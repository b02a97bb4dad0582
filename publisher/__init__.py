"""The publisher: the process beside a datastore that reads its log, pushes to subscribers and stores datamarkers."""
