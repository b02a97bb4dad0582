"""Reading existing rows from tables: the parts that all SQL servers share."""
