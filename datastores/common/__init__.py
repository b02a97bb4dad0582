"""What the datastores share: state files, URLs, proofs of what was read, and the encoder of updates."""
