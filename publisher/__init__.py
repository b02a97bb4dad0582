"""The process that runs next to a datastore: reads its log, pushes to subscribers, keeps their datamarkers."""
