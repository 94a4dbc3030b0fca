"""Servicers: gRPC to domain and back, nothing else. Errors are the domain's, mapped by `scheduler.errors.translate`."""
