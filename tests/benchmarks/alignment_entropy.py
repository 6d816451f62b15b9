"""How sharp are the alignments that each objective learns? The order of Deng et al. 2018, table 3, on grapheme-phoneme
pairs.

    PYTHONPATH=. python tests/benchmarks/alignment_entropy.py --data data/morph --out runs/alignment_entropy --seeds 3

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
from keras import layers, ops

import keras_vattn
from applications.common.metrics import mean_interval, paired_interval

# What a row is trained for; the others draw their context inside the decoder.
OBJECTIVES = {
    "soft": "soft",
    "marginal": "marginal",
    "hard-enumerate": "hard/enumerate",
    "elbo-enumerate": "elbo/enumerate",
    "elbo-sample": "elbo/sample",
}
ROWS = (*OBJECTIVES, "dirichlet", "weibull")
WITH_POSTERIOR = ("elbo-enumerate", "elbo-sample", "dirichlet")
# The kind of the predictive likelihood that a row has.
KINDS = {name: "exact" for name in OBJECTIVES} | {"soft": "plug-in", "dirichlet": "predictive", "weibull": "predictive"}
# The order of table 3 says that each of these is positive.
CLAIMS = (
    ("elbo-enumerate", "hard-enumerate"),
    ("elbo-sample", "hard-enumerate"),
    ("marginal", "elbo-enumerate"),
    ("marginal", "elbo-sample"),
    ("soft", "marginal"),
    ("dirichlet", "soft"),
)
PAD, UNKNOWN, START, END = range(4)


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


def read_words(path):
    return [line.split() for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]


def vocabulary(words):
    """Ids of the symbols, the frequent ones first, behind the four special ones."""
    counts = collections.Counter(symbol for word in words for symbol in word)
    return {symbol: index for index, (symbol, _) in enumerate(counts.most_common(), start=END + 1)}


class Data:
    """Pairs of id lists, and the vocabularies, which are made of the training file alone."""

    def __init__(self, options):
        folder = pathlib.Path(options.data)
        words = {name: read_words(folder / name) for name in ("src.train", "tgt.train", "src.valid", "tgt.valid")}
        self.symbols = {side: vocabulary(words[f"{side}.train"]) for side in ("src", "tgt")}
        encoded = {name: [self._encode(name[:3], word) for word in part] for name, part in words.items()}
        pairs = list(zip(encoded["src.train"], encoded["tgt.train"], strict=True))
        # The same pairs are held out under every seed.
        order = np.random.default_rng(0).permutation(len(pairs))
        self.train = [pairs[i] for i in order[options.held_out :]]
        self.held_out = [pairs[i] for i in order[: options.held_out]]
        self.valid = list(zip(encoded["src.valid"], encoded["tgt.valid"], strict=True))
        self.longest = tuple(max(len(pair[side]) for pair in (*pairs, *self.valid)) for side in (0, 1))

    def _encode(self, side, word):
        ids = [self.symbols[side].get(symbol, UNKNOWN) for symbol in word]
        return ids if side == "src" else [START, *ids, END]

    def symbol(self, side, number):
        names = {PAD: "", UNKNOWN: "?", START: "<", END: ">"}
        return {**names, **{index: symbol for symbol, index in self.symbols[side].items()}}[int(number)]


def padded(pairs, lengths):
    """The inputs of the model: source (B, S), and target (B, 1 + T) from the start to the end of the word."""
    inputs = {
        "source": np.zeros((len(pairs), lengths[0]), "int32"),
        "target": np.zeros((len(pairs), lengths[1]), "int32"),
    }
    for row, pair in enumerate(pairs):
        for name, ids in zip(inputs, pair, strict=True):
            inputs[name][row, : len(ids)] = ids
    return inputs


def batches(pairs, options, seed):
    """Yield the batches of all epochs, words of similar length together, and padded to one of few lengths."""
    generator = np.random.default_rng(seed)
    for _ in range(options.epochs):
        order = generator.permutation(len(pairs))
        # Pools of 16 batches are sorted; what is left over at the end waits for the next epoch.
        pool, in_epoch = 16 * options.batch_size, []
        for start in range(0, len(order), pool):
            group = sorted(
                (pairs[i] for i in order[start : start + pool]), key=lambda pair: (len(pair[0]), len(pair[1]))
            )
            chunks = [group[i : i + options.batch_size] for i in range(0, len(group), options.batch_size)]
            in_epoch.extend(chunk for chunk in chunks if len(chunk) == options.batch_size)
        for index in generator.permutation(len(in_epoch)):
            batch = in_epoch[index]
            inputs = padded(batch, [bucket(max(len(pair[side]) for pair in batch), options.jit) for side in (0, 1)])
            yield inputs, inputs["target"][:, 1:]


def bucket(length, jit):
    """Length to pad to: a new length is a new compilation under XLA."""
    return 6 * -(-length // 6) if jit else length


def num_steps(pairs, options):
    """Number of full batches an epoch."""
    pool = 16 * options.batch_size
    sizes = [min(pool, len(pairs) - start) for start in range(0, len(pairs), pool)]
    return sum(size // options.batch_size for size in sizes)


class Model:
    """The layers of one row, the model that is trained, and the one that predicts, which has no posterior.

    Args:
        row: One of `ROWS`.
        options: The `Options`.
        vocabulary_sizes: Of source and target.
        seed: Of the dropout and the draws.
        steps: Number of training calls an epoch.
    """

    def __init__(self, row, options, vocabulary_sizes, seed, steps):
        self.row, self.options = row, options
        width, units = options.embedding_width, options.units
        embedding = lambda size, name: layers.Embedding(size, width, name=name)  # noqa: E731
        self.source_embedding = embedding(vocabulary_sizes[0], "source_embedding")
        self.target_embedding = embedding(vocabulary_sizes[1], "target_embedding")
        self.source_dropout = layers.Dropout(options.dropout, seed=seed + 1, name="source_dropout")
        self.target_dropout = layers.Dropout(options.dropout, seed=seed + 2, name="target_dropout")
        self.encoder = bidirectional(options.encoder_units, "encoder")
        self.decoder = keras_vattn.AttentionDecoder(
            units, self._attention(seed + 3, steps), feeding="expected", seed=seed + 4, name="decoder"
        )
        # The emission tanh(W [h_t; x_s] + b), split.
        self.query = layers.Dense(units, name="emission_query")
        self.value = layers.Dense(units, use_bias=False, name="emission_value")
        # Shared by the candidates of a query.
        self.hidden_dropout = layers.Dropout(
            options.dropout, noise_shape=(None, None, 1, None), seed=seed + 5, name="hidden_dropout"
        )
        self.words = keras_vattn.TokenLogLikelihood(vocabulary_sizes[1], ignore_class=PAD, name="words")
        if row in WITH_POSTERIOR:
            self.source_reader = bidirectional(options.encoder_units, "posterior_source")
            self.target_reader = bidirectional(options.encoder_units, "posterior_target")
            self.posterior_score = keras_vattn.Bilinear(name="posterior_score")
        self.seed = seed
        inputs = {
            "source": keras.Input((None,), dtype="int32", name="source"),
            "target": keras.Input((None,), dtype="int32", name="target"),
        }
        self.training_model = keras.Model(inputs, self._training_output(inputs))
        self.prediction_model = keras.Model(inputs, self._prediction_outputs(inputs))

    def _attention(self, seed, steps):
        options, score = self.options, keras_vattn.Additive(self.options.units, name="score")
        if self.row == "dirichlet":
            warm_start, annealing = (round(x * steps) for x in (options.warm_start_epochs, options.kl_annealing_epochs))
            schedule = keras_vattn.LinearAnnealing(annealing) if annealing else None
            return keras_vattn.DirichletAttention(
                score, warm_start=warm_start, kl_annealing=schedule, seed=seed, name="attention"
            )
        if self.row == "weibull":
            prior = keras_vattn.ContextualPrior(beta=options.weibull_beta)
            return keras_vattn.BayesianAttention(
                "weibull", score, prior, k=options.weibull_k, seed=seed, name="attention"
            )
        return keras_vattn.DeterministicAttention(score, name="attention")

    def _read(self, inputs):
        """Everything that both models have in common: a dictionary."""
        source = self.source_dropout(self.source_embedding(inputs["source"]))
        target = self.target_dropout(self.target_embedding(inputs["target"]))
        words = inputs["target"][:, 1:]
        read = {"words": words, "mask": ops.not_equal(words, PAD), "source_mask": ops.not_equal(inputs["source"], PAD)}
        posterior_logits = None
        if self.row in WITH_POSTERIOR:
            # Row t pairs with the word that step t predicts; the readers share the dropped embeddings.
            queries = self.target_reader(target[:, 1:], mask=read["mask"])
            posterior_logits = self.posterior_score(queries, self.source_reader(source, mask=read["source_mask"]))
        memory = self.encoder(source, mask=read["source_mask"])
        return {**read, "embedded": target[:, :-1], "memory": memory, "posterior_logits": posterior_logits}

    def _decode(self, read, posterior_logits=None):
        return self.decoder(
            read["embedded"],
            read["memory"],
            inputs_mask=read["mask"],
            memory_mask=read["source_mask"],
            posterior_logits=posterior_logits,
            return_attention_scores=True,
            return_logits=True,
        )

    def _hidden(self, query, candidates):
        return self.hidden_dropout(ops.tanh(self.query(query)[:, :, None] + candidates))

    def _bound(self, objective, read, decoded, posterior_logits=None, name=None):
        """The value of each word under an objective, from the logits that the decoder has computed."""
        objective = keras_vattn.LatentObjective(objective)
        latent = keras_vattn.CategoricalAttention(objective=objective, seed=self.seed + 6, name=name)(
            decoded["query"],
            self.value(read["memory"]),
            query_mask=read["mask"],
            value_mask=read["source_mask"],
            posterior_logits=posterior_logits,
            logits=decoded["logits"],
        )
        log_likelihood = self.words(self._hidden(decoded["query"], latent["candidates"]), read["words"])
        value = keras_vattn.LatentLogLikelihood(objective)
        return value(log_likelihood, latent["log_prior"], latent.get("log_posterior"))

    def _of_context(self, read, decoded):
        """The value of each word given the one context that the decoder has drawn, or its mean."""
        candidates = self.value(decoded["context"])[:, :, None]
        return self.words(self._hidden(decoded["query"], candidates), read["words"])[..., 0]

    def _training_output(self, inputs):
        read = self._read(inputs)
        if self.row in OBJECTIVES:
            return self._bound(OBJECTIVES[self.row], read, self._decode(read), read["posterior_logits"], "latent")
        return self._of_context(read, self._decode(read, read["posterior_logits"]))

    def _prediction_outputs(self, inputs):
        read = self._read(inputs)
        decoded = self._decode(read)
        outputs = {"weights": decoded["weights"], "plug-in": self._of_context(read, decoded)}
        if self.row in OBJECTIVES:
            outputs["exact"] = self._bound("marginal", read, decoded)
        return outputs

    def decode_greedily(self, source, max_length):
        """Ids (B, max_length) of the most probable word, symbol by symbol, under the marginal or the mean weights."""
        mask = ops.not_equal(source, PAD)
        memory = self.encoder(self.source_embedding(source), mask=mask)
        prepared, value = self.decoder.prepare_memory(memory, mask), self.value(memory)
        batch_size = ops.shape(source)[0]
        objective = "soft" if KINDS[self.row] != "exact" else "marginal"
        attention = keras_vattn.CategoricalAttention(objective=objective)

        def step(ids, state, position):
            decoded, state = self.decoder.step(self.target_embedding(ids), state, prepared)
            query = decoded["query"][:, None]
            latent = attention(query, value, value_mask=mask, logits=decoded["logits"][:, None])
            hidden = self._hidden(query, latent["candidates"])
            return self.words(hidden, log_weights=latent["log_weights"])[:, 0], state, {}

        start, first = ops.full((batch_size,), START, "int32"), self.decoder.start(batch_size, prepared)
        return keras_vattn.decoding.greedy(step, first, start, END, max_length)["ids"].numpy()


def bidirectional(units, name):
    # A name of its own, so that a weight has the same path in every row.
    return layers.Bidirectional(layers.LSTM(units, return_sequences=True, name=f"{name}_lstm"), name=name)


def build(row, options, data, seed, steps):
    """The model of a row; what it shares with soft attention starts as there, under the same seed."""
    sizes = [len(data.symbols[side]) + END + 1 for side in ("src", "tgt")]
    keras.utils.set_random_seed(seed)
    reference = Model("soft", options, sizes, 1000 * seed, steps)
    if row == "soft":
        return reference
    model = Model(row, options, sizes, 1000 * seed, steps)
    variables = {variable.path: variable for variable in model.training_model.trainable_variables}
    for variable in reference.training_model.trainable_variables:
        variables[variable.path].assign(variable)
    return model


def word_mask(inputs):
    return inputs["target"][:, 1:] != PAD


def entropy(weights):
    """Entropy in nats over the last axis."""
    weights = np.asarray(weights, np.float64)
    return -np.sum(np.where(weights > 0, weights * np.log(np.where(weights > 0, weights, 1.0)), 0.0), axis=-1)


def per_symbol(log_likelihood, mask):
    """Negative log-likelihood per symbol, and its standard error over words, that of a ratio of two sums."""
    totals, counts = -np.sum(np.where(mask, log_likelihood, 0.0), axis=1, dtype=np.float64), mask.sum(axis=1)
    mean = totals.sum() / counts.sum()
    num_words = len(totals)
    variance = np.sum((totals - mean * counts) ** 2) * num_words / (num_words - 1)
    return float(mean), float(np.sqrt(variance) / counts.sum())


def look(model, pairs, lengths):
    """Early look at held-out pairs: the negative log-likelihoods and the entropy per symbol."""
    inputs = padded(pairs, lengths)
    mask = word_mask(inputs)
    outputs = model.prediction_model.predict(inputs, batch_size=len(pairs), verbose=0)
    seen = {name: per_symbol(value, mask)[0] for name, value in outputs.items() if name != "weights"}
    return {**seen, "entropy": float(entropy(outputs["weights"])[mask].mean())}


def evaluate(model, data, seed):
    """Everything that is reported of a run."""
    inputs = padded(data.valid, data.longest)
    mask = word_mask(inputs)
    outputs = model.prediction_model.predict(inputs, batch_size=len(mask), verbose=0)
    values = {name: value for name, value in outputs.items() if name != "weights"}
    result = {"entropy": float(entropy(outputs["weights"])[mask].mean())}
    if KINDS[model.row] == "predictive":
        draws = keras_vattn.posterior_predictive(
            model.prediction_model, inputs, model.options.num_draws, seed=seed, batch_size=len(mask)
        )
        # The draw of one step enters no later state, so the mean over draws is taken symbol by symbol.
        by_symbol = keras_vattn.metrics.predictive_log_likelihood(draws["plug-in"].reshape(len(draws["plug-in"]), -1))
        values["predictive"] = np.reshape(by_symbol, mask.shape)
        result["entropy_of_draws"] = float(entropy(draws["weights"])[:, mask].mean())
    for name, value in values.items():
        result[name], result[f"{name}_standard_error"] = per_symbol(value, mask)
    ids = model.decode_greedily(inputs["source"], data.longest[1])
    words = [list(row[: list(row).index(END)] if END in row else row) for row in ids]
    result["words_right"] = float(
        np.mean([word == pair[1][1:-1] for word, pair in zip(words, data.valid, strict=True)])
    )
    return result, alignment_as_text(data, data.valid[0], outputs["weights"][0])


def alignment_as_text(data, pair, weights):
    """The weights of one pair in per cent: a line a target symbol, a column a source symbol."""
    lines = ["   " + "".join(f"{data.symbol('src', number):>4}" for number in pair[0])]
    for number, row in zip(pair[1][1:], weights):
        cells = "".join(f"{100 * x:4.0f}" for x in row[: len(pair[0])])
        lines.append(f"{data.symbol('tgt', number):>3}{cells}")
    return "\n".join(lines)


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


def interval_text(interval, digits=4):
    mean, low, high = interval
    return f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def table(runs):
    """The Markdown table of all runs: means and 95% intervals over seeds."""
    lines = [
        "| row | kind | NLL of that kind | standard error over words | plug-in NLL | entropy | entropy of draws "
        "| words right | seconds | processor seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
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
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def differences(runs):
    """The paired differences in entropy that the order of table 3 claims to be positive, and what holds."""
    lines = ["| entropy difference | mean [95% interval] | of the seeds | |", "|---|---|---|---|"]
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
        lines.append(f"| {more} - {less} | {interval_text(interval, 3)} | {positive} of {len(seeds)} | {verdict} |")
    return "\n".join(lines)


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
    text = f"{table(runs)}\n\n{differences(runs)}\n"
    (folder / "table.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
