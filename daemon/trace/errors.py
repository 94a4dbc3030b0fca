"""What the sink raises on purpose."""


class SinkError(Exception):
    """Base of what this room raises on purpose."""


class BadName(SinkError):
    """A node, container or attempt that cannot be one."""


class Untraced(SinkError):
    """No trace of the container, and none can be made."""
