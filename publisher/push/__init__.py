"""Pushes updates to subscribers over gRPC, with one stream per subscriber, and keeps the state of each flow."""
