"""Benchmarks of time and memory. To run one: `PYTHONPATH=tests:. python -m benchmarks.NAME`."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1] / "helpers"))
