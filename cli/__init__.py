"""`gauntlet …`: a thin client of the gRPC API and of the room `network`."""
