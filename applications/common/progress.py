"""Progress of everything that takes longer than a few seconds, on standard error."""

import sys
import time


def progress(items, title):
    """Yield the items, and write every five seconds how many of them are done and how long the rest will take.

    Args:
        items: Any iterable; with a length, the line names it and the time left.
        title: First word of the line.
    """
    total = len(items) if hasattr(items, "__len__") else None
    start = last = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - last >= 5.0:
            last, left = now, f", {(now - start) * (total - done) / done:.0f} s left" if total else ""
            print(f"{title}: {done}/{total or '?'}, {now - start:.0f} s{left}", file=sys.stderr, flush=True)
