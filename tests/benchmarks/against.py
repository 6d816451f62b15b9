"""Compares the step times of this checkout ("new") with those of another checkout ("old").

    PYTHONPATH=tests python -m benchmarks.against OTHER_CHECKOUT [WORDS OF ROWS ...] [--threads 1 2] [--kinds graph jit]
    ... --memory

Each checkout runs in a process of its own, and the two processes are timed alternately. The script prints milliseconds
and ratios, and writes them to runs/benchmarks/. WORDS are regular expressions that select rows by name. With `--memory`
it prints peak memory instead; each value is measured in a separate process. Steps of translation models are also
compared with the time for their matrix products alone.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import timeit

ROOT = pathlib.Path(__file__).resolve().parents[2]


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
        attention_layer = keras_vattn.Attention("bilinear", alignment, prior=prior)
        return keras_vattn.AttentionDecoder(100, attention_layer, **options), ((100, 21, 400), (100, 30, 200))

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
# Rows that time whole models: training steps of models of Deng et al. 2018 ("nmt", with a setting of `nmt_step`) and of
# Bahuleyan et al. 2018 ("ved"), and beam searches.
PROGRAMS = (
    *(f"nmt {model} {setting}" for setting in "ABC" for model in ("soft", "variational_sample")),
    *(f"nmt {model} {setting}" for setting in "AB" for model in ("marginal", "variational_enum")),
    *(f"nmt soft B-batch-{batch}" for batch in (1, 8, 64, 256)),
    "ved ved_vattn_mean",
    *(f"beam marginal 32 {inference}" for inference in ("exact", "kmax:5", "kmax:1")),
)
BEAM_STEPS = 6
# Steps are timed in series of at least this many seconds, because single short steps vary too much.
SECONDS = 0.1


def build(row, kind):
    """Return a function without arguments that runs one step of a row. `kind` selects a training step (if the row is a
    layer, without the update), a call in inference, or the matrix products of a training step.
    """
    import numpy as np
    import tensorflow as tf

    if row in PROGRAMS:
        return build_program(kind, *row.split())
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


def build_program(kind, program, model, setting=None, inference=None):
    if program == "ved":
        from applications.ved.options import PROGRAM
        from benchmarks.paper import paper_options
        from benchmarks.ved_step import training_step

        return training_step(paper_options(PROGRAM, model=model, jit="on" if kind == "jit" else "off"))
    from benchmarks.nmt_step import beam_search, matrix_products, product_shapes, training_step

    if program == "beam":
        return beam_search(model, int(setting), inference, max_length=BEAM_STEPS - 1)
    if kind == "products":
        return matrix_products([shape for shapes in product_shapes(model, setting).values() for shape in shapes])
    return training_step(model, setting, jit=kind == "jit")


def work():
    """Read requests "row|kind" from standard input. For each, build and warm up the step, then print its seconds."""
    steps = {}
    # Redirect the output of TensorFlow to stderr, so that stdout contains only the answers.
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


def environment_of(checkout):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout), str(ROOT / "tests")])}
    # Append the user's PYTHONPATH, because TensorFlow may be installed there.
    environment["PYTHONPATH"] += os.pathsep + os.environ.get("PYTHONPATH", "")
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return environment


def start(checkout, threads):
    environment = environment_of(checkout) | {f"TF_NUM_{name}_THREADS": str(threads) for name in ("INTRAOP", "INTEROP")}
    command = [sys.executable, "-c", "from benchmarks.against import work; work()"]
    return subprocess.Popen(
        command, env=environment, cwd=checkout, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def ask(process, row, kind):
    process.stdin.write(f"{row}|{kind}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def measure(processes, row, kind, num_rounds):
    """Time a row in each process, alternately; return a dictionary from the name of a process to a list of seconds."""
    requests = {name: (process, "products" if name == "products" else kind) for name, process in processes.items()}
    seconds = {name: [] for name in requests}
    for round_number in range(num_rounds + 1):
        for name in requests if round_number % 2 else reversed(requests):
            duration = ask(requests[name][0], row, requests[name][1])
            if round_number:
                seconds[name].append(duration)
    return seconds


def peak_memory(checkout, row):
    """Run two steps in a separate process; return its peak resident memory, and its memory before the steps, in MiB."""
    command = [sys.executable, "-m", "benchmarks.nmt_step", *row.split()[1:]]
    printed = subprocess.run(
        command, env=environment_of(checkout), cwd=checkout, capture_output=True, text=True, check=True
    ).stdout
    second, first, before = (float(x) for x in printed.split()[-3:])
    return max(first, second), before


def measure_memory(options):
    import numpy as np

    from benchmarks.paired import report

    rows = []
    for row in chosen_rows(options):
        for name, path in (("new", ROOT), ("old", options.other.resolve())):
            peaks = np.array([peak_memory(path, row) for _ in range(options.rounds)])
            for quantity, values in (("peak", peaks[:, 0]), ("peak minus before", peaks[:, 0] - peaks[:, 1])):
                rows.append((f"{row}, {quantity}, {name}", (np.median(values), values.min(), values.max()), "MiB"))
    report(f"{options.title}: memory of a step, median [smallest, largest] of {options.rounds} processes", rows)


def chosen_rows(options):
    rows = [row for row in PROGRAMS if row.startswith("nmt")] if options.memory else (*ROWS, *PROGRAMS)
    return [row for row in rows if not options.words or any(re.search(word, row) for word in options.words)]


def main(options):
    import numpy as np

    from benchmarks.paired import median_interval, report

    if options.memory:
        measure_memory(options)
        return
    rows = []
    for threads in options.threads:
        processes = {name: start(path, threads) for name, path in (("new", ROOT), ("old", options.other.resolve()))}
        products = start(ROOT, threads)
        for row in chosen_rows(options):
            for kind in options.kinds or (KINDS if row in ROWS else KINDS[:1]):
                products_process = {"products": products} if row.startswith("nmt") and kind == "graph" else {}
                seconds = measure(processes | products_process, row, kind, options.rounds)
                seconds = {name: 1e3 * np.asarray(values) for name, values in seconds.items()}
                measured = [(name, median_interval(values), "ms") for name, values in seconds.items()]
                pairs = [("new", "old"), *(("new", name) for name in products_process)]
                measured += [(f"{x} / {y}", median_interval(seconds[x] / seconds[y]), "ratio") for x, y in pairs]
                rows += [(f"{row}, {kind}, {threads} thr., {name}", *rest) for name, *rest in measured]
                for name, (median, low, high), unit in rows[-len(measured) :]:
                    print(f"{name:58} {median:9.3f} [{low:.3f}, {high:.3f}] {unit}", flush=True)
        for process in (*processes.values(), products):
            process.stdin.close()
    report(f"{options.title}: forward and backward, or inference", rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("other", type=pathlib.Path)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--threads", type=int, nargs="+", default=[os.cpu_count()])
    parser.add_argument("--kinds", nargs="+", choices=KINDS)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--title", default="steps over another checkout")
    main(parser.parse_args())
