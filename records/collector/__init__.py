"""The collector: the process that takes spooled lines from the nodes and puts them into the event store."""
