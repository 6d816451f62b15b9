import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.slow
def test_products_and_jacobians():
    """Products run in a separate process, because a write outside the result ends the process."""
    result = subprocess.run(
        [sys.executable, ROOT / "tests/helpers/product_places.py"],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    last = result.stdout.splitlines()[-1:]
    assert (result.returncode, last) == (0, ["complete"]), result.stderr[-2000:]
