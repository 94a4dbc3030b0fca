"""Fresh containers for judges on this node."""
