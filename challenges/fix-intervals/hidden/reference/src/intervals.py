"""Merging of time intervals."""


def merge(intervals):
    """The fewest sorted intervals that cover the same time."""
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def busy(intervals):
    """Total covered time."""
    return sum(end - start for start, end in merge(intervals))
