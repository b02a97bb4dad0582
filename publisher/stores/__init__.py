"""The stores of a publisher: datamarkers, dead letters (parked updates), and documents about a log's servers."""
