"""What is measured of a model of the alignment benchmark: likelihoods, entropies, words and one alignment as text."""

import numpy as np
from benchmarks.alignment_data import END, PAD, padded
from benchmarks.alignment_model import KINDS

import keras_vattn


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
