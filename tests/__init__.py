"""The suite: unit (mirrors the tree), contract, property, integration, system, fuzz, mutants, benchmarks."""
