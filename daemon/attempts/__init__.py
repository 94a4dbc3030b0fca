"""The life of an attempt on its node: claim, time limit, end, evidence, recovery after a restart."""
