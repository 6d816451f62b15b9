"""Grapheme-phoneme pairs as ids, and the batches of a run."""

import collections
import pathlib

import numpy as np

PAD, UNKNOWN, START, END = range(4)


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
