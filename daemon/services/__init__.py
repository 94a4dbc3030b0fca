"""gRPC to domain and back, nothing else."""
