"""The values that every part shares: positions, segments, schemas, errors. Imports no other package of the project."""
