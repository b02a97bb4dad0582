"""What was archived against what was delivered and processed."""
