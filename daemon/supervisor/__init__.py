"""The daemon's side of PID 1's framed protocol (images/supervisor/PROTOCOL.md)."""
