"""The audit: compares archived updates with delivered and processed ones."""
