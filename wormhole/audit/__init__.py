"""What was delivered and processed of each flow, counted by windows of commit time."""
