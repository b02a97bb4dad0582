"""Reading the edits: places, proofs, readers."""
