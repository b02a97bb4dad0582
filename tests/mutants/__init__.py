"""Small faults, each of which must turn the suite red. `make mutants` runs them."""
