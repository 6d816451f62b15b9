"""Steps of this checkout over those of another, in interleaved pairs: one process for each, asked in turn.

    PYTHONPATH=tests python -m benchmarks.against OTHER_CHECKOUT [WORDS OF ROWS ...]

Prints the ratios of all rows, or of those whose name holds one of the words, and writes them to runs/benchmarks/.
"""

import os
import pathlib
import subprocess
import sys
import timeit

ROOT = pathlib.Path(__file__).resolve().parents[2]
NUM_ROUNDS = 30


def attention(alignment, prior, **options):
    def make():
        import keras_vattn

        return keras_vattn.Attention("bilinear", alignment, prior=prior, **options), ((32, 32, 256), (32, 64, 256))

    return make


def heads(alignment, prior):
    def make():
        import keras_vattn

        options = {"alignment": alignment, "prior": prior, "kl_reduction": "mean"}
        return keras_vattn.MultiHeadAttention(8, 32, **options), ((16, 64, 256), (16, 64, 256))

    return make


def decoder(alignment, **options):
    def make():
        import keras_vattn

        prior = "contextual" if alignment == "weibull" else None
        held = keras_vattn.Attention("bilinear", alignment, prior=prior)
        return keras_vattn.AttentionDecoder(100, held, **options), ((100, 21, 400), (100, 30, 200))

    return make


def gaussian():
    import keras_vattn

    return keras_vattn.GaussianAttention("bilinear"), ((32, 32, 256), (32, 64, 256))


ROWS = {
    "attention softmax": attention("softmax", None),
    "attention weibull": attention("weibull", None),
    "attention weibull contextual": attention("weibull", "contextual"),
    "attention lognormal contextual": attention("lognormal", "contextual"),
    "attention gumbel": attention("gumbel_softmax", None),
    "attention gumbel contextual": attention("gumbel_softmax", "contextual"),
    "attention dirichlet fixed": attention("dirichlet", "fixed"),
    "attention gaussian": gaussian,
    "heads softmax": heads("softmax", None),
    "heads weibull contextual": heads("weibull", "contextual"),
    "heads dirichlet fixed": heads("dirichlet", "fixed"),
    "decoder softmax": decoder("softmax"),
    "decoder weibull": decoder("weibull"),
    "decoder two layers": decoder("weibull", num_layers=2, dropout=0.2),
    "decoder expected": decoder("softmax", num_layers=2, feeding="expected"),
}
KINDS = ("graph", "jit", "inference")
# Steps of `fit` at the paper's sizes.
PROGRAMS = ("nmt soft", "nmt variational_sample")
# What is shorter is timed several times in a row.
SECONDS = 0.1


def build(row, kind):
    """Return a function of no argument: a training step without its update, or a call with `training=False`."""
    import numpy as np
    import tensorflow as tf

    if row in PROGRAMS:
        from benchmarks.nmt_step import training_step

        return training_step(row.split()[1])
    layer, shapes = ROWS[row]()
    inputs = [tf.constant(np.random.default_rng(0).normal(size=shape), tf.float32) for shape in shapes]
    layer(*inputs)

    def result_of(inputs, training):
        result = layer(*inputs, training=training)
        return result["context"] if isinstance(result, dict) else result

    def step(inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(result_of(inputs, True))) + sum(layer.losses)
        return loss, tape.gradient(loss, [weight.value for weight in layer.trainable_variables])

    if kind == "inference":
        compiled = tf.function(lambda inputs: tf.reduce_sum(result_of(inputs, False)), autograph=False)
        return lambda: compiled(inputs).numpy()
    compiled = tf.function(step, jit_compile=kind == "jit", autograph=False)
    return lambda: compiled(inputs)[0].numpy()


def work():
    """Answer each line "row|kind" with the seconds of one step, built and warm."""
    steps = {}
    # What TensorFlow says goes nowhere near the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        row, kind = line.strip().split("|")
        if (row, kind) not in steps:
            steps.clear()
            steps[row, kind] = build(row, kind)
            timeit.timeit(steps[row, kind], number=3)
            calls = max(1, round(SECONDS / timeit.timeit(steps[row, kind], number=1)))
        print(timeit.timeit(steps[row, kind], number=calls) / calls, file=answers)


def start(checkout):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout), str(ROOT / "tests")])}
    # What a user has set for PYTHONPATH follows: a machine may keep TensorFlow there.
    environment["PYTHONPATH"] += os.pathsep + os.environ.get("PYTHONPATH", "")
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    command = [sys.executable, "-c", "from benchmarks.against import work; work()"]
    return subprocess.Popen(
        command, env=environment, cwd=checkout, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def ask(process, row, kind):
    process.stdin.write(f"{row}|{kind}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def main(other, words):
    from benchmarks.paired import median_interval, report

    processes = [start(ROOT), start(pathlib.Path(other).resolve())]
    rows = []
    for row in (*ROWS, *PROGRAMS):
        if words and not any(word in row for word in words):
            continue
        for kind in KINDS if row in ROWS else KINDS[:1]:
            for process in processes:
                ask(process, row, kind)
            ratios = []
            for round_number in range(NUM_ROUNDS):
                order = processes if round_number % 2 else processes[::-1]
                seconds = {process.pid: ask(process, row, kind) for process in order}
                ratios.append(seconds[processes[0].pid] / seconds[processes[1].pid])
            rows.append((f"{row}, {kind}", median_interval(ratios), "ratio"))
            print(rows[-1], flush=True)
    report("steps over another checkout: forward and backward, or inference", rows)
    for process in processes:
        process.stdin.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
