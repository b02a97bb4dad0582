"""Baselines: reads the existing rows of tables in parallel, as the first snapshot of an archive that began later."""
