"""The settings of a subscriber (``SubscriberOptions``), and the check of publishers that want to push to it."""
