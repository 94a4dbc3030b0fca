"""The control database: queue, attempts, nodes, challenges, request ids. A port and its two adapters."""
