"""Reads the edits: places, proofs of datamarkers, and readers."""
