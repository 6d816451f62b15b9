"""One line of progress on standard error, for everything that takes longer than a few seconds."""

import sys
import time


def progress(items, title, every_seconds=5.0, total=None):
    """Yield the items and write, at most every `every_seconds`, how many of them are done.

    Args:
        items: Any iterable; with a length, or with `total`, the line names it.
        title: First word of the line.
        every_seconds: Seconds between lines. Nothing is written before the first have passed.
        total: Number of items, where the iterable does not know it.
    """
    if total is None and hasattr(items, "__len__"):
        total = len(items)
    of_total = f"/{total}" if total is not None else ""
    start = last = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - last >= every_seconds:
            last = now
            print(f"{title}: {done}{of_total}, {now - start:.0f} s", file=sys.stderr, flush=True)
