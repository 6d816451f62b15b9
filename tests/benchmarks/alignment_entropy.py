"""How sharp are the alignments that each objective learns? The order of Deng et al. 2018, table 3, on grapheme-phoneme
pairs.

    PYTHONPATH=.:tests python -m benchmarks.alignment_entropy --data data/morph --out runs/alignment_entropy --seeds 3

The folder of the data holds src.train, tgt.train, src.valid and tgt.valid, one word per line, its symbols separated by
spaces. Every row is the same encoder-decoder, started from the same weights, with the same batches, dropout masks and
number of steps; the rows differ in what happens to the alignment. The validation pairs are read once, at the end of a
run; the curves are those of pairs held out of the training file. A run whose result is in the folder is not repeated.
"""

import argparse
import collections
import dataclasses
import gc
import json
import os
import pathlib
import time

import keras
import numpy as np
import tensorflow as tf
from benchmarks.alignment_data import PAD, Data, batches, num_steps
from benchmarks.alignment_evaluation import evaluate, look
from benchmarks.alignment_model import KINDS, ROWS, build

import keras_vattn
from applications.common.significance import mean_interval, paired_interval
from applications.common.tables import interval_text, table

# The order of table 3 says that each of these is positive.
CLAIMS = (
    ("elbo-enumerate", "hard-enumerate"),
    ("elbo-sample", "hard-enumerate"),
    ("marginal", "elbo-enumerate"),
    ("marginal", "elbo-sample"),
    ("soft", "marginal"),
    ("dirichlet", "soft"),
)


@dataclasses.dataclass
class Options:
    """What a run depends on beside its row and its seed."""

    data: str
    epochs: int = 8
    batch_size: int = 32
    embedding_width: int = 128
    encoder_units: int = 64
    units: int = 128
    dropout: float = 0.3
    learning_rate: float = 1e-3
    clipnorm: float = 5.0
    held_out: int = 500
    warm_start_epochs: float = 2.0
    kl_annealing_epochs: float = 0.0
    weibull_k: float = 10.0
    weibull_beta: float = 1.0
    num_draws: int = 20
    jit: bool = False


def run(row, seed, options, data):
    """Train and evaluate one row with one seed; the result is a dictionary."""
    keras.backend.clear_session()
    gc.collect()
    started, processor = time.perf_counter(), time.process_time()
    steps = num_steps(data.train, options)
    model = build(row, options, data, seed, steps)
    seconds = {"build": time.perf_counter() - started}
    curve = []

    def end_of_epoch(epoch, logs):
        began = time.perf_counter()
        in_training = {name: float(value) for name, value in logs.items()}
        curve.append({**in_training, **look(model, data.held_out, data.longest)})
        curve[-1]["seconds"] = time.perf_counter() - began

    signature = (
        {name: tf.TensorSpec((options.batch_size, None), tf.int32) for name in ("source", "target")},
        tf.TensorSpec((options.batch_size, None), tf.int32),
    )
    dataset = tf.data.Dataset.from_generator(lambda: batches(data.train, options, seed), output_signature=signature)
    # A tenth for the last quarter of the steps: at the full rate the likelihood, close to 0, still jumps.
    rates = [options.learning_rate, 0.1 * options.learning_rate]
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([3 * options.epochs * steps // 4], rates)
    optimizer = keras.optimizers.Adam(schedule, clipnorm=options.clipnorm)
    model.training_model.compile(optimizer, keras_vattn.NegativeBound(ignore_class=PAD), jit_compile=options.jit)
    began = time.perf_counter()
    model.training_model.fit(
        dataset,
        shuffle=False,
        epochs=options.epochs,
        steps_per_epoch=steps,
        verbose=0,
        callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=end_of_epoch)],
    )
    seconds["fit"] = time.perf_counter() - began
    result, alignment = evaluate(model, data, seed)
    seconds["all"], seconds["processor"] = time.perf_counter() - started, time.process_time() - processor
    print(f"{row}, seed {seed}: {seconds['all']:.0f} s\n{alignment}", flush=True)
    return {
        "row": row,
        "seed": seed,
        "options": dataclasses.asdict(options),
        "kind": KINDS[row],
        "steps": options.epochs * steps,
        "parameters": model.training_model.count_params(),
        "seconds": seconds,
        "curve": curve,
        "valid": result,
        "alignment": alignment,
    }


def table_of(runs):
    """The Markdown table of all runs: means and 95% intervals over seeds."""
    heads = ("row", "kind", "NLL of that kind", "standard error over words", "plug-in NLL", "entropy")
    heads += ("entropy of draws", "words right", "seconds", "processor seconds")
    lines = []
    for row, of_row in runs.items():
        values = lambda name, of_row=of_row: [x["valid"][name] for x in of_row]  # noqa: E731
        kind = of_row[0]["kind"]
        draws = interval_text(mean_interval(values("entropy_of_draws")), 3) if kind == "predictive" else ""
        cells = (
            row,
            f"predictive({of_row[0]['options']['num_draws']})" if kind == "predictive" else kind,
            interval_text(mean_interval(values(kind)), 5),
            f"{np.mean(values(f'{kind}_standard_error')):.5f}",
            interval_text(mean_interval(values("plug-in")), 5),
            interval_text(mean_interval(values("entropy")), 3),
            draws,
            f"{np.mean(values('words_right')):.3f}",
            *(f"{np.mean([x['seconds'][name] for x in of_row]):.0f}" for name in ("all", "processor")),
        )
        lines.append(cells)
    return table(heads, lines)


def differences(runs):
    """The paired differences in entropy that the order of table 3 claims to be positive, and what holds."""
    lines = []
    for more, less in CLAIMS:
        if more not in runs or less not in runs:
            continue
        by_seed = [{x["seed"]: x["valid"]["entropy"] for x in runs[row]} for row in (more, less)]
        seeds = sorted(by_seed[0].keys() & by_seed[1].keys())
        pair = [[values[seed] for seed in seeds] for values in by_seed]
        interval = paired_interval(*pair)
        positive = sum(a > b for a, b in zip(*pair, strict=True))
        verdict = "holds" if interval.low > 0 else "is reversed" if interval.high < 0 else "is not decided"
        verdict = "one seed, no claim" if len(seeds) == 1 else verdict
        lines.append((f"{more} - {less}", interval_text(interval), f"{positive} of {len(seeds)}", verdict))
    return table(("entropy difference", "mean [95% interval]", "of the seeds", ""), lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="runs/alignment_entropy")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS)
    parser.add_argument("--threads", type=int, default=1)
    for field in dataclasses.fields(Options):
        name = f"--{field.name.replace('_', '-')}"
        if field.type is bool:
            parser.add_argument(name, action=argparse.BooleanOptionalAction, default=field.default)
        else:
            default = "data/morph" if field.name == "data" else field.default
            parser.add_argument(name, type=field.type, default=default)
    arguments = parser.parse_args()
    tf.get_logger().setLevel("ERROR")
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    options = Options(**{field.name: getattr(arguments, field.name) for field in dataclasses.fields(Options)})
    data, folder = Data(options), pathlib.Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    runs = collections.defaultdict(list)
    # Seed by seed, so that an interrupted comparison has whole pairs.
    for seed in range(arguments.seeds):
        for row in arguments.rows:
            path = folder / f"{row}_seed_{seed}.json"
            if not path.exists():
                result = run(row, seed, options, data)
                path.with_suffix(".tmp").write_text(json.dumps(result, indent=1, ensure_ascii=False), encoding="utf-8")
                os.replace(path.with_suffix(".tmp"), path)
            stored = json.loads(path.read_text(encoding="utf-8"))
            if stored["options"] != dataclasses.asdict(options):
                raise SystemExit(f"{path} was written with other options. Choose another --out.")
            runs[row].append(stored)
    text = f"{table_of(runs)}\n\n{differences(runs)}\n"
    (folder / "table.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
