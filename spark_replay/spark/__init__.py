"""How a Spark session is made."""
