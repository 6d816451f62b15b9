"""Runs code in a process that cannot import this project, which tests that the code needs only exported files."""

import json
import os
import subprocess
import sys


def result_elsewhere(code, *arguments, folder, text=None):
    """Run a program in a folder with `text` as standard input, and return the JSON that it prints after RESULT."""
    result = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        input=text,
        cwd=folder,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.partition("RESULT")[2])
