"""One node: gRPC services, warm pool, sandbox life cycle, workspace, supervisor link, telemetry sources, reclaim."""
