"""What has to be in the database: what `wormholectl doctor` finds, and the SQL that makes what is missing."""
