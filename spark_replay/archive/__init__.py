"""The archive of one dataset: Parquet files that hold every update, and manifests that say which files count."""
