"""The client processes of this repository's own subscribers."""
