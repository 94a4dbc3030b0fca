"""One node: gRPC services, warm pool, sandbox life cycle, workspace, supervisor link, telemetry sources, reclaim."""

import os

# Before gRPC is imported, by whichever module comes first. The daemon and the trace sink run programs (runsc, mkfs)
# beside gRPC's threads; with its fork handlers on, one child in some dozens hangs or dies on its way to its program.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
