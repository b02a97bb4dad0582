"""The values that every part shares: positions, segments, schemas, errors. Imports nothing of ours."""
