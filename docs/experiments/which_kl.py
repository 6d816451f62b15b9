"""Which KL should you try first? Compares four KLs of stochastic attention weights on four tasks, with paired seeds.

    python docs/experiments/which_kl.py train reversal digits scenes translation
    python docs/experiments/which_kl.py tables

`train` runs each KL with two or three weights. It appends a line for each run to which_kl_<task>.csv in the folder of
this file, and skips runs that already have a line. `tables` prints means over the seeds, and differences in NLL with
95% t intervals over paired seeds. NLL, accuracy and ECE are computed on test examples from the mean of 20 sampled
predictions; sd is the standard deviation of the sampled weights. The KL is measured during the last training epoch.
"""

import csv
import itertools
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

import keras_vattn as kv
from applications.common.significance import paired_interval
from applications.graphs.data import digits as digit_graph
from applications.nmt.data import built_in_pairs
from applications.vision import scenes as drawn_scenes

FOLDER = pathlib.Path(__file__).parent
SEEDS, KL_WEIGHTS, NUM_DRAWS = (1, 2, 3), (1.0, 0.1), 20
# Third KL weight, for KLs of unnormalized attention weights, because the KL weights 1 and 0.1 destroyed most of the
# attention in the task `scenes`.
WEAKEST = 0.01
# Alignment and prior for each form of the KL. "simplex": the KL of the normalized attention weights; all other KLs are
# of the unnormalized weights. "own family": prior and posterior have the same family of distributions.
FORMS = {
    "softmax": lambda: ("softmax", None),
    "weibull, no KL": lambda: (kv.Weibull(), None),
    "weibull, published": lambda: (kv.Weibull(), kv.GammaPrior()),
    "weibull, simplex": lambda: (kv.Weibull(kl_of="weights"), kv.GammaPrior()),
    "weibull, own family": lambda: (kv.Weibull(), kv.ContextualPrior()),
    "weibull, own family on the simplex": lambda: (kv.Weibull(kl_of="weights"), kv.ContextualPrior()),
    "lognormal, no KL": lambda: (kv.LogNormal(), None),
    "lognormal, published": lambda: (kv.LogNormal(), kv.LogNormalPrior()),
    "lognormal, simplex": lambda: (kv.LogNormal(kl_of="weights"), kv.LogNormalPrior()),
    "lognormal, own family": lambda: (kv.LogNormal(), kv.ContextualPrior()),
    "lognormal, own family on the simplex": lambda: (kv.LogNormal(kl_of="weights"), kv.ContextualPrior()),
}
FIGURES = ("train_loss", "nll", "accuracy", "ece", "weights_sd", "kl", "kl_above_floor")


def attention_options(form, kl_weight, seed):
    alignment, prior = FORMS[form]()
    return {"alignment": alignment, "prior": prior, "kl_weight": kl_weight, "seed": seed}


def train_model(model, loss, data, epochs, learning_rate, batch_size=64):
    """Train the model; return the logs of the last epoch."""
    model.compile(keras.optimizers.Adam(learning_rate), loss, jit_compile=False)
    if isinstance(data, tf.data.Dataset):
        log = model.fit(data, epochs=epochs, verbose=0, shuffle=False)
    else:
        log = model.fit(*data, epochs=epochs, batch_size=batch_size, verbose=0)
    return {name: values[-1] for name, values in log.history.items()}


def figures(log, probabilities, labels, weights):
    """Return the metrics of a run, a dictionary with the keys `FIGURES`.

    Args:
        log: Logs of the last epoch.
        probabilities: Sampled probabilities (draws, N, C).
        labels: True classes (N,).
        weights: Sampled attention weights, a list of one array (draws, ...) per layer, zero at masked positions.
    """
    deviations = [x.std(axis=0)[x.mean(axis=0) > 0.0] for x in weights]
    divergences = {name: value for name, value in log.items() if "_kl" in name}
    kls_above_floor = {name: divergences.get(f"{name}_above_floor", value) for name, value in divergences.items()}
    raw_kls = {name: value for name, value in divergences.items() if not name.endswith("_above_floor")}
    return {
        "train_loss": log["loss"],
        "nll": kv.metrics.negative_log_likelihood(probabilities, labels),
        "accuracy": float(np.mean(probabilities.mean(axis=0).argmax(axis=-1) == labels)),
        "ece": kv.metrics.expected_calibration_error(probabilities, labels),
        "weights_sd": float(np.mean(np.concatenate(deviations))),
        "kl": sum(raw_kls.values()),
        "kl_above_floor": sum(kls_above_floor[name] for name in raw_kls),
    }


def draw_outputs(model, inputs, form, max_rows=256):
    """Return a list with samples (draws, ...) of each output. A model with softmax attention has one draw."""
    if form == "softmax":
        predictions = model.predict(inputs, verbose=0)
        return [x[None] for x in predictions]
    return kv.posterior_predictive(model, inputs, NUM_DRAWS, seed=0, max_rows=max_rows)


def reversal(form, kl_weight, seed):
    """Task: reverse sequences of eight digits, with 2,048 training sequences and four epochs."""
    digits = np.random.default_rng(0).integers(10, size=(2560, 8))
    x = np.concatenate([np.eye(10)[digits], np.tile(np.eye(8), (2560, 1, 1))], axis=-1).astype("float32")
    y = digits[:, ::-1]
    inputs = keras.Input((8, 18))
    hidden = layers.Dense(64)(inputs)
    attention = kv.MultiHeadAttention(1, 32, name="attention", **attention_options(form, kl_weight, seed))
    attended, weights = attention(hidden, hidden, return_attention_scores=True)
    logits = layers.Dense(10)(attended)
    model = keras.Model(inputs, logits)
    log = train_model(model, kv.SequenceCrossentropy(), (x[:2048], y[:2048]), epochs=4, learning_rate=0.01)
    probabilities, weights = draw_outputs(keras.Model(inputs, [layers.Softmax()(logits), weights]), x[2048:], form)
    return figures(log, probabilities.reshape(len(probabilities), -1, 10), y[2048:].ravel(), [weights])


def digits(form, kl_weight, seed):
    """Task: classify scikit-learn's digits, nodes of a ten-nearest-neighbours graph; 20 nodes per class have labels."""
    features, labels, edges = digit_graph(10)
    features = (features / 16.0).astype("float32")
    edges = np.unique(np.concatenate([edges, edges[:, ::-1]]), axis=0).astype("int32")
    order = np.random.default_rng(0).permutation(len(labels))
    train_nodes = np.concatenate([order[labels[order] == each][:20] for each in range(10)])
    test_nodes = np.setdiff1d(order, train_nodes)
    nodes, ends = keras.Input((64,)), keras.Input((2,), dtype="int32")
    options = {"feature_dropout": 0.4, "dropout": 0.4}
    # The loss is the mean cross-entropy of the labelled nodes, plus the KL per node.
    first = kv.GraphAttention(
        8, 8, activation="elu", name="first", **options, **attention_options(form, kl_weight, seed)
    )
    second = kv.GraphAttention(10, 1, name="second", **options, **attention_options(form, kl_weight, seed + 100))
    hidden, first_weights = first(nodes, ends, return_attention_scores=True)
    logits, second_weights = second(hidden, ends, return_attention_scores=True)
    model = keras.Model([nodes, ends], logits)
    counts = np.zeros(len(labels), "float32")
    counts[train_nodes] = len(labels) / len(train_nodes)
    graph = tf.data.Dataset.from_tensors(((features, edges), labels, counts))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    log = train_model(model, loss, graph, epochs=100, learning_rate=0.01)
    prediction_model = keras.Model([nodes, ends], [layers.Softmax()(logits), first_weights, second_weights])
    passes = 1 if form == "softmax" else NUM_DRAWS
    outputs = []
    for number in range(passes):
        if form == "softmax":
            outputs.append(prediction_model((features, edges), training=False))
        else:
            with kv.posterior_draws(prediction_model, seed=number):
                outputs.append(prediction_model((features, edges), training=False))
    probabilities, *weights = (np.stack(x) for x in zip(*outputs, strict=True))
    return figures(log, probabilities[:, test_nodes], labels[test_nodes], weights)


def token_ids(texts, vocabulary, length):
    ids_table = np.zeros((len(texts), length), "int32")
    for row, text in zip(ids_table, texts, strict=True):
        ids = [vocabulary.get(word, 1) for word in text][:length]
        row[: len(ids)] = ids
    return ids_table


def vocabulary_of(texts):
    return {word: index + 2 for index, word in enumerate(sorted(set(itertools.chain(*texts))))}


def scenes(form, kl_weight, seed):
    """Task: answer questions about an object in a scene. As in a block of MCAN, the words of the question attend to
    each other, then to the sixteen cells of the scene."""
    examples = drawn_scenes.scenes(2000, seed=0)
    # The features of a cell simulate the features of an object detector: colour and shape, with noise.
    kinds = [*drawn_scenes.COLORS, *drawn_scenes.SHAPES]
    cells = 0.3 * np.random.default_rng(1).normal(size=(len(examples), 16, 12)).astype("float32")
    for number, scene in enumerate(examples):
        for thing in scene.objects:
            cells[number, thing.cell, [kinds.index(thing.color), kinds.index(thing.shape)]] += 1.0
    columns = drawn_scenes.question_columns(examples, 8)
    single_object = [index for index, cell in enumerate(columns["cell"]) if cell >= 0]
    row, texts, answers = ([columns[name][index] for index in single_object] for name in ("row", "text", "votes"))
    row, texts, answers = np.array(row), [text.split() for text in texts], [votes[0] for votes in answers]
    classes = {answer: index for index, answer in enumerate(sorted(set(answers)))}
    words, labels = token_ids(texts, vocabulary_of(texts), 14), np.array([classes[answer] for answer in answers])
    train, other = row < 1600, row >= 1600
    question_input, cell_input = keras.Input((14,), dtype="int32"), keras.Input((16, 12))
    word = layers.Embedding(200, 64, mask_zero=False)(question_input)
    mask = ops.not_equal(question_input, 0)
    word = word + layers.Embedding(14, 64)(ops.arange(14))
    cell = layers.Dense(64, "relu")(cell_input) + layers.Embedding(16, 64)(ops.arange(16))
    drawn_weights = []
    for name, memory, valid in (("self", None, mask), ("guided", cell, None)):
        attention = kv.MultiHeadAttention(2, 32, name=name, **attention_options(form, kl_weight, seed))
        memory = word if memory is None else memory
        attended, weights = attention(word, memory, query_mask=mask, value_mask=valid, return_attention_scores=True)
        drawn_weights.append(weights)
        word = layers.LayerNormalization()(word + attended)
        word = layers.LayerNormalization()(word + layers.Dense(64)(layers.Dense(128, "relu")(word)))
    pooled = layers.GlobalAveragePooling1D()(word, mask=mask)
    logits = layers.Dense(len(classes))(pooled)
    model = keras.Model([question_input, cell_input], logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    log = train_model(model, loss, ([words[train], cells[row[train]]], labels[train]), epochs=6, learning_rate=0.003)
    prediction_model = keras.Model([question_input, cell_input], [layers.Softmax()(logits), *drawn_weights])
    probabilities, *weights = draw_outputs(prediction_model, [words[other], cells[row[other]]], form)
    # Exclude padded queries from the standard deviation of the weights.
    counted = (words[other] > 0)[:, None, :, None]
    return figures(log, probabilities, labels[other], [np.where(counted, x, 0.0) for x in weights])


def translation(form, kl_weight, seed):
    """Task: translate the built-in German sentences, with a bidirectional encoder and additive attention."""
    pairs = built_in_pairs("amounts")
    order = np.random.default_rng(0).permutation(len(pairs))[:2500]
    texts = [[getattr(pairs[index], name) for index in order] for name in ("source", "target")]
    texts = [[text.split() if isinstance(text, str) else list(text) for text in side] for side in texts]
    texts[1] = [["<s>", *text, "</s>"] for text in texts[1]]
    vocabularies = [vocabulary_of(side) for side in texts]
    source, target = (token_ids(*pair, 16) for pair in zip(texts, vocabularies, strict=True))
    inputs, targets = target[:, :-1], target[:, 1:]
    source_input, target_input = keras.Input((16,), dtype="int32"), keras.Input((15,), dtype="int32")
    size = len(vocabularies[1]) + 2
    memory = layers.Embedding(len(vocabularies[0]) + 2, 64, mask_zero=True)(source_input)
    memory = layers.Bidirectional(layers.LSTM(64, return_sequences=True))(memory)
    words = layers.Embedding(size, 64, mask_zero=True)(target_input)
    attention = kv.Attention("additive", name="attention", **attention_options(form, kl_weight, seed))
    decoded = kv.AttentionDecoder(128, attention)(words, memory, return_attention_scores=True)
    logits = layers.Dense(size)(ops.concatenate([decoded["hidden"], decoded["context"]], axis=-1))
    model = keras.Model([source_input, target_input], logits)
    loss = kv.SequenceCrossentropy(ignore_class=0)
    log = train_model(model, loss, ([source[:2200], inputs[:2200]], targets[:2200]), epochs=6, learning_rate=0.005)
    prediction_model = keras.Model([source_input, target_input], [layers.Softmax()(logits), decoded["weights"]])
    probabilities, weights = draw_outputs(prediction_model, [source[2200:], inputs[2200:]], form)
    counted = targets[2200:] > 0
    return figures(
        log, probabilities[:, counted], targets[2200:][counted], [np.where(counted[..., None], weights, 0.0)]
    )


TASKS = {task.__name__: task for task in (reversal, digits, scenes, translation)}


def read(task):
    path = FOLDER / f"which_kl_{task}.csv"
    if not path.exists():
        return {}
    with path.open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    return {
        (x["form"], float(x["kl_weight"]), int(x["seed"])): {name: float(x[name]) for name in FIGURES} for x in lines
    }


def train(task):
    path, existing = FOLDER / f"which_kl_{task}.csv", read(task)
    is_new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ("form", "kl_weight", "seed", *FIGURES))
        if is_new:
            writer.writeheader()
        for seed, (form, kl_weight) in itertools.product(SEEDS, rows()):
            if (form, kl_weight, seed) in existing:
                continue
            keras.utils.clear_session()
            keras.utils.set_random_seed(seed)
            run_figures = TASKS[task](form, kl_weight, seed)
            writer.writerow({"form": form, "kl_weight": kl_weight, "seed": seed, **run_figures})
            file.flush()
            print(task, form, kl_weight, seed, {name: round(x, 4) for name, x in run_figures.items()}, flush=True)


def rows():
    """Yield (form, KL weight) for each row of a table; `FORMS` lists the forms of the KL."""
    for form in FORMS:
        has_divergence = FORMS[form]()[1] is not None
        weakest = () if "simplex" in form else (WEAKEST,)
        for kl_weight in (*KL_WEIGHTS, *weakest) if has_divergence else (0.0,):
            yield form, kl_weight


def tables():
    for task in TASKS:
        results = read(task)
        print(f"\n### {task}\n")
        print("| form | weight | NLL | NLL - no KL | NLL - published | accuracy | ECE | sd | KL | above floor |")
        print("|---|---|---|---|---|---|---|---|---|---|")

        def nll(form, kl_weight):
            return [results[form, kl_weight, seed]["nll"] for seed in SEEDS]  # noqa: B023

        for form, kl_weight in rows():
            lines = [results[form, kl_weight, seed] for seed in SEEDS]
            means = {name: np.mean([line[name] for line in lines]) for name in FIGURES}
            family, values = form.partition(",")[0], nll(form, kl_weight)
            baselines = [(f"{family}, no KL", 0.0), (f"{family}, published", kl_weight)] if kl_weight else []
            differences = [
                "" if form == base[0] else _interval(paired_interval(values, nll(*base))) for base in baselines
            ]
            entries = [form, kl_weight or "-", f"{means['nll']:.4f}", *(differences or ["", ""])]
            entries += [f"{means[name]:.4f}" for name in ("accuracy", "ece", "weights_sd")]
            entries += [f"{means[name]:.4g}" for name in ("kl", "kl_above_floor")]
            print(f"| {' | '.join(map(str, entries))} |")


def _interval(interval):
    return f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"


if __name__ == "__main__":
    command, *names = sys.argv[1:]
    if command == "train":
        for name in names or TASKS:
            train(name)
    else:
        tables()
