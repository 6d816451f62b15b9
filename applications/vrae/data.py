"""Reads sentences, cuts held-out parts, fits the vocabulary, and makes batches."""

import dataclasses
import pathlib

import numpy as np

from applications.common.errors import InputError
from applications.text import python_topics
from applications.text.batching import bucketed_dataset, num_batches
from applications.text.options import PARTS
from applications.text.readers import folded, read_sentences
from applications.text.text import SPECIAL_TOKENS, TextEncoder, Tokenizer, Vocabulary

# Seed of the cut of the embedded sentences' test part.
_TEST_SEED = 3


@dataclasses.dataclass
class Sentences:
    """Sentences of a part.

    Attributes:
        texts: list of str.
        skipped: How many lines were left out.
    """

    texts: list
    skipped: int = 0

    def __len__(self):
        return len(self.texts)


def load(options):
    """Return the parts that the options describe, a dictionary of `Sentences`: files, or the embedded ones, cut
    80/10/10."""
    given, found = options.text, {}
    if given.train_text is None:
        place = "the embedded sentences"
        texts = [sentence for sentences in python_topics.topics().values() for sentence in sentences]
        found["train"], found["test"] = _cut(place, Sentences(texts), 0.1, _TEST_SEED)
        valid_share = 1 / 9
    else:
        place, valid_share = given.train_text, given.valid_fraction
        for part in PARTS:
            path = getattr(given, f"{part}_text")
            if path is not None:
                found[part] = read(path, given)
        if "test" not in found and given.test_fraction:
            found["train"], found["test"] = _cut(place, found["train"], given.test_fraction, given.data_seed + 1)
    if "valid" not in found:
        found["train"], found["valid"] = _cut(place, found["train"], valid_share, given.data_seed)
    return {part: found[part] for part in PARTS if part in found}


def read(path, given, skip_invalid=None):
    """Return the `Sentences` of a file, in the form that `TextOptions` describe."""
    skip_invalid = given.skip_invalid if skip_invalid is None else skip_invalid
    texts, skipped = read_sentences(path, given.text_column, given.labelled, skip_invalid)
    return Sentences(texts, skipped)


def _cut(place, sentences, share, seed):
    """Return what is left and what is held out of sentences, which are from that place; equal ones stay together, in
    whatever case."""
    groups = list(dict.fromkeys(map(folded, sentences.texts)))
    count = max(1, round(share * len(groups)))
    if count >= len(groups):
        raise InputError(f"{place}: too few sentences to hold some out, {len(groups)} different ones")
    order = np.random.default_rng(seed).permutation(len(groups))
    held = {groups[index] for index in order[:count]}
    rest = [text for text in sentences.texts if folded(text) not in held]
    return Sentences(rest, sentences.skipped), Sentences([text for text in sentences.texts if folded(text) in held])


@dataclasses.dataclass
class Codec:
    """What turns sentences into ids and back."""

    vocabulary: Vocabulary
    words: TextEncoder

    @classmethod
    def of(cls, options, vocabulary):
        tokenizer = Tokenizer(options.text.lowercase, options.text.split_punctuation)
        return cls(vocabulary, TextEncoder(tokenizer, vocabulary))

    @classmethod
    def fit(cls, options, train):
        """Fit the vocabulary on the training sentences."""
        tokens = Tokenizer(options.text.lowercase, options.text.split_punctuation).token_lists(train.texts)
        vocabulary = Vocabulary.fit(tokens, options.text.vocabulary_size, options.text.min_count)
        if len(vocabulary) == len(SPECIAL_TOKENS):
            raise InputError(
                f"--min-count: no word of the sentences occurs that often. Received: {options.text.min_count}"
            )
        return cls.of(options, vocabulary)

    @classmethod
    def load(cls, options, folder):
        return cls.of(options, Vocabulary.load(pathlib.Path(folder.path) / "vocabulary.txt"))

    def save(self, folder):
        self.vocabulary.save(folder.file("vocabulary.txt"))


@dataclasses.dataclass
class EncodedSentences:
    """Ids of sentences.

    Attributes:
        texts: list of str.
        ids: list of int arrays, without start and end.
        report: What encoding did.
    """

    texts: list
    ids: list
    report: dict

    @classmethod
    def of(cls, options, codec, part):
        ids, counts = codec.words.encode_numpy(part.texts, options.text.max_length)
        empty = [row for row, x in enumerate(ids) if not len(x)]
        if empty:
            raise InputError(f"sentence {empty[0] + 1} has no word. Received: {part.texts[empty[0]]!r}")
        report = {"sentences": len(part), "skipped": part.skipped, **dataclasses.asdict(counts)}
        return cls(part.texts, ids, report)

    def __len__(self):
        return len(self.ids)

    def rows(self, indices):
        """Return the sentences of these indices."""
        return EncodedSentences([self.texts[row] for row in indices], [self.ids[row] for row in indices], self.report)

    def num_batches(self, batch_size):
        """Return how many batches an epoch has."""
        return num_batches(len(self.ids), batch_size)

    def batches(self, options, first_epoch=None):
        """Return batches of (inputs, targets), as `Application.batches` has them."""
        training = first_epoch is not None
        dataset = bucketed_dataset(
            self.ids,
            self.ids,
            options.fit.batch_size,
            shuffle=training,
            seed=options.run.seed,
            first_epoch=first_epoch or 0,
            num_epochs=None if training else 1,
        )
        return dataset.map(lambda inputs, target: ({**inputs, "target": target}, target))
