"""The archive of one dataset: Parquet files with every update, and manifests that list the valid files.

The folder has more than twenty modules, because all of them read or write the same form of files.
"""
