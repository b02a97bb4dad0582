"""What the application sets (``SubscriberOptions``), and which publishers that admits."""
