"""Common parts of the datastores: state files, URLs, proofs of the log that was read, and the encoder of updates."""
