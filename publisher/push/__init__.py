"""Pushing over gRPC: one stream per subscriber."""
