"""Component resources, one per environment."""
