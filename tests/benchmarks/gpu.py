"""Measures the layers and the programs on a GPU, and runs the GPU tests.

    PYTHONPATH=tests:. python -m benchmarks.gpu [--only layers programs tests] [--seconds 600]

- layers: median time of a training step and peak memory, in float32 and mixed_bfloat16, in graph mode and under XLA,
  compared with Keras layers.
- programs: median time of a step of `train` on the built-in data, in float32 and bfloat16, in graph mode and under XLA.
  `PROGRAMS` lists the presets: that of the paper, unless it requires data files.
- tests: the tests marked `gpu`.

If a measurement fails, or takes longer than `--seconds`, its row shows the error. Without a GPU the sizes are small,
and the run shows only that the script works. Writes runs/benchmarks/gpu.json and prints it as Markdown.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path("runs/benchmarks")
PRECISIONS = ("float32", "bfloat16")
MULTI_HEAD = {
    "keras.layers.MultiHeadAttention": None,
    "softmax": {},
    "weibull contextual": {"alignment": "weibull", "prior": "contextual"},
    "lognormal contextual": {"alignment": "lognormal", "prior": "contextual"},
    "dirichlet": {"alignment": "dirichlet", "prior": "fixed"},
    "weibull contextual, in chunks": {"alignment": "weibull", "prior": "contextual", "query_chunk_size": 128},
}
ATTENTIONS = ("DeterministicAttention", "GaussianAttention", "BayesianAttention")
PROGRAMS = {
    "ved": "paper",
    "nmt": "paper",
    "vqa": "updown",
    "captioning": "paper",
    "vrae": "paper",
    "graphs": "small",
    "finetuning": "small",
}


def models(is_small):
    """Yield (name, function that builds a model with the layer, inputs, targets) for each layer to measure."""
    import keras
    import numpy as np

    import keras_vattn

    generator = np.random.default_rng(0)
    batch, length, heads, width = (2, 16, 2, 8) if is_small else (32, 256, 8, 64)

    def multi_head(options):
        x = keras.Input((length, heads * width))
        kind = keras.layers.MultiHeadAttention if options is None else keras_vattn.MultiHeadAttention
        return keras.Model(x, kind(heads, width, **(options or {}))(x, x))

    data = generator.normal(size=(batch, length, heads * width)).astype("float32")
    for name, options in MULTI_HEAD.items():
        yield f"multi-head, {name}", (lambda options=options: multi_head(options)), data, data
    width, words = heads * width, min(length, 32)

    def decoder(name):
        steps, memory = keras.Input((words, width)), keras.Input((words, width))
        if name == "keras.layers.LSTM":
            return keras.Model([steps, memory], keras.layers.LSTM(width, return_sequences=True)(steps))
        attention = getattr(keras_vattn, name)("additive")
        return keras.Model([steps, memory], keras_vattn.AttentionDecoder(width, attention)(steps, memory)["hidden"])

    data = [generator.normal(size=(batch, words, width)).astype("float32") for _ in range(2)]
    for name in ("keras.layers.LSTM", *ATTENTIONS):
        yield f"decoder, {name}", (lambda name=name: decoder(name)), data, data[0]


def measure_layers(precision, jit):
    """Measure each layer, and print its row as JSON."""
    import keras
    import numpy as np
    import tensorflow as tf

    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    keras.config.set_dtype_policy("float32" if precision == "float32" else f"mixed_{precision}")
    for name, make, inputs, targets in models(is_small=not has_gpu):
        row = {"name": name, "precision": precision, "jit": jit}
        try:
            if has_gpu:
                tf.config.experimental.reset_memory_stats("GPU:0")
            model = make()
            model.compile(keras.optimizers.SGD(1e-6), "mse", jit_compile=jit)
            batch = tf.nest.map_structure(tf.constant, (inputs, targets))
            seconds = []
            for _ in range(33 if has_gpu else 4):
                start = time.perf_counter()
                model.train_on_batch(*batch)
                seconds.append(time.perf_counter() - start)
            row |= {"first_seconds": seconds[0], "milliseconds": 1e3 * float(np.median(seconds[3:]))}
            if has_gpu:
                row["megabytes"] = tf.config.experimental.get_memory_info("GPU:0")["peak"] / 1e6
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:300]}"
        print(f"ROW{json.dumps(row)}", flush=True)


def rows_of(words, seconds, **row):
    """Run a command; return the rows that it prints or, if it fails, a row with the error."""
    try:
        result = subprocess.run(words, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return [row | {"error": f"took longer than {seconds} seconds"}]
    rows = [json.loads(line[3:]) for line in result.stdout.splitlines() if line.startswith("ROW")]
    if result.returncode and not rows:
        return [row | {"error": (result.stderr.strip().splitlines() or [f"status {result.returncode}"])[-1][:300]}]
    return rows


def layers(options, has_gpu):
    for precision in PRECISIONS:
        for jit in (False, True):
            words = [sys.executable, "-m", "benchmarks.gpu", "--layers", precision, *(["--jit"] if jit else [])]
            yield from rows_of(words, options.seconds, name="layers", precision=precision, jit=jit)


def programs(options, has_gpu):
    for name, preset in PROGRAMS.items():
        preset = preset if has_gpu else "small"
        for precision in PRECISIONS if has_gpu else PRECISIONS[:1]:
            for jit in (False, True):
                row = {"name": name, "preset": preset, "precision": precision, "jit": jit}
                with tempfile.TemporaryDirectory() as folder:
                    out = pathlib.Path(folder, "run")
                    words = f"-m applications.{name} train --preset {preset} --max-steps {60 if has_gpu else 3}"
                    words += f" --no-export --tensorboard False --jit {'on' if jit else 'off'} --out {out}"
                    words += f" --mixed-precision {'none' if precision == 'float32' else precision}"
                    rows = rows_of([sys.executable, *words.split()], options.seconds, **row)
                    metrics = out / "metrics.json"
                    if metrics.exists():
                        record = json.loads(metrics.read_text())
                        rows = [row | {"milliseconds": 1e3 * record["step_seconds"], "data": "built-in"}]
                yield from rows


def tests(options, has_gpu):
    environment = os.environ | {"KERAS_VATTN_TEST_GPU": "1"}
    words = [sys.executable, "-m", "pytest", "-q", "-n0", "-m", "gpu", "tests"]
    result = subprocess.run(words, capture_output=True, text=True, env=environment)
    lines = result.stdout.strip().splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    yield {"name": "tests", "outcome": lines[-1] if lines else result.stderr[-300:], "failed": failed}


PARTS = {"layers": layers, "programs": programs, "tests": tests}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--layers", choices=PRECISIONS)
    parser.add_argument("--jit", action="store_true")
    options = parser.parse_args()
    if options.layers:
        measure_layers(options.layers, options.jit)
        return
    words = "import json, tensorflow as tf; from applications.common.environment import environment_record as r; "
    words += "devices = [tf.config.experimental.get_device_details(x).get('device_name') for x in "
    words += "tf.config.list_physical_devices('GPU')]; print('ROW' + json.dumps({'devices': devices} | r()))"
    # Query the GPU in a separate process, because this process would reserve the memory of the GPU.
    (record,) = rows_of([sys.executable, "-c", words], options.seconds)
    if "error" in record:
        sys.exit(record["error"])
    FOLDER.mkdir(parents=True, exist_ok=True)
    for part in options.only:
        record[part] = []
        for row in PARTS[part](options, bool(record["devices"])):
            record[part].append(row)
            print(row, flush=True)
            (FOLDER / "gpu.json").write_text(json.dumps(record, indent=2))
    print(
        f"\n{', '.join(record['devices']) or 'no GPU'}\n\n| | precision | XLA | ms a step | MB |\n|---|---|---|---|---|"
    )
    for row in [row for part in options.only if part != "tests" for row in record[part]]:
        cells = row["name"], row["precision"], "yes" if row["jit"] else "no"
        memory = f"{row['megabytes']:.0f}" if "megabytes" in row else "-"
        figures = f"{row['error']} | -" if "error" in row else f"{row['milliseconds']:.2f} | {memory}"
        print(f"| {' | '.join(cells)} | {figures} |")


if __name__ == "__main__":
    main()
