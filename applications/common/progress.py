"""Writes the progress of long operations to standard error."""

import sys
import time


def progress(items, title):
    """Yield the items of an iterable, and write the progress to standard error.

    Lines begin with `title` and contain the number of items done. If the length is known, they also contain the
    remaining time. A terminal shows one line that is updated. Elsewhere, a line is added every 5 seconds.
    """
    total = len(items) if hasattr(items, "__len__") else None
    on_terminal = sys.stderr.isatty()
    start = last = time.monotonic()
    written = 0
    for done, item in enumerate(items, start=1):
        yield item
        current_time = time.monotonic()
        if current_time - last >= (0.2 if on_terminal else 5.0):
            last = current_time
            line = f"{title}: {done}" + (f"/{total}" if total else "") + f", {current_time - start:.0f} s"
            if total:
                line += f", {(current_time - start) * (total - done) / done:.0f} s left"
            print(f"\r{line:{written}}" if on_terminal else line, end="" if on_terminal else "\n", file=sys.stderr)
            sys.stderr.flush()
            written = len(line)
    if on_terminal and written:
        print(f"\r{'':{written}}\r", end="", file=sys.stderr, flush=True)
