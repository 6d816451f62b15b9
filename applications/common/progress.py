"""One line of progress on standard error, for everything that takes longer than a few seconds."""

import sys
import time


def progress(items, title, every_seconds=5.0):
    """Yield the items and write, at most every `every_seconds`, how many of them are done.

    Args:
        items: Any iterable; with a length, the line names it.
        title: First word of the line.
        every_seconds: Seconds between lines. Nothing is written before the first have passed.
    """
    of_total = f"/{len(items)}" if hasattr(items, "__len__") else ""
    start = last = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - last >= every_seconds:
            last = now
            print(f"{title}: {done}{of_total}, {now - start:.0f} s", file=sys.stderr, flush=True)
