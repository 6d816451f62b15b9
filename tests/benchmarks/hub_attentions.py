"""Tests `to_bayesian` on every backbone class with attention in the installed version of KerasHub.

    PYTHONPATH=tests python -m benchmarks.hub_attentions [NAME ...]

The script converts a tiny model of each class, with random weights, and prints a table with a row per class.
docs/pretrained_models.md explains the columns.
"""

import pathlib
import subprocess
import sys
import tempfile

import keras_hub
from hub_models import LOAD, attention_backbones, row_of


def main(names):
    print(f"KerasHub {keras_hub.__version__}\n")
    print("| class | attentions | converted | difference | file | generate | back | KL |\n" + "|---" * 8 + "|")
    with tempfile.TemporaryDirectory() as folder:
        rows = {}
        for name in names or attention_backbones():
            try:
                rows[name] = row_of(name, pathlib.Path(folder))
            except Exception as error:
                rows[name] = f"cannot be called, {type(error).__name__}"
        loaded = subprocess.run([sys.executable, "-c", LOAD, folder], capture_output=True, text=True, check=True).stdout
    loaded = dict(line.split(" ", 1) for line in loaded.splitlines())
    for name, row in rows.items():
        if not isinstance(row, dict):
            print(f"| {name} | {row} |" + " |" * 6)
            continue
        file = loaded[name].split()
        file = "as saved" if file[0] == str(row["converted"]) and float(file[1]) < 1e-5 else " ".join(file)
        same = {None: "-", True: "same", False: "other"}[row["same"]]
        figures = f"{row['difference']:.0e} | {file} | {same} | {row['back']:.0e} | {row['kl']:.0f}"
        called = "" if row["called"] == row["converted"] else f", {row['called']} called"
        print(f"| {name} | {row['attentions']} | {row['converted']}{called} | {figures} |")


if __name__ == "__main__":
    main(sys.argv[1:])
