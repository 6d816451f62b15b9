"""A tiny BERT, pretrained on text that comes with Python, so that fine-tuning starts from something: on masked words,
and on whether two sentences stand on one page."""

import functools

import keras
import numpy as np
import tensorflow as tf
import tensorflow_text

from applications.finetuning.data import padded
from applications.finetuning.embedded import pages
from applications.finetuning.tokens import TextEncoder

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCABULARY_SIZE = 4000
LENGTH, BATCH, SHARE, LEARNING_RATE = 64, 32, 0.15, 5e-4
SIZES = {"num_layers": 2, "num_heads": 4, "hidden_dim": 96, "intermediate_dim": 256, "max_sequence_length": 128}


@functools.cache
def tokenizer():
    """Return a WordPiece tokenizer whose vocabulary is the most frequent words and parts of words."""
    import keras_hub

    dataset = tf.data.Dataset.from_tensor_slices([each for page in pages() for each in page]).batch(256)
    vocabulary = keras_hub.tokenizers.compute_word_piece_vocabulary(
        dataset, VOCABULARY_SIZE, lowercase=True, reserved_tokens=list(SPECIAL)
    )
    # A file of one piece a line has no place for white space.
    pieces = [piece for piece in vocabulary if piece == piece.strip() and piece != "##"]
    return keras_hub.models.BertTokenizer(pieces, lowercase=True)


def new_backbone(dropout=0.0):
    """Return the transformer, its weights random."""
    import keras_hub

    return keras_hub.models.BertBackbone(tokenizer().vocabulary_size(), dropout=dropout, name="backbone", **SIZES)


@functools.cache
def pretrained_weights(num_steps, seed):
    """Return the weights of the transformer after so many steps, and the losses of the last tenth: of a masked word and
    of a pair of sentences."""
    keras.utils.set_random_seed(seed)
    backbone, encoder = new_backbone(), TextEncoder(tokenizer(), LENGTH)
    outputs = backbone.output
    hidden = keras.layers.Dense(SIZES["hidden_dim"], "gelu")(outputs["sequence_output"])
    hidden = keras.layers.LayerNormalization()(hidden)
    words = Frequencies(token_counts(encoder), name="words")(backbone.token_embedding(hidden, reverse=True))
    pair = keras.layers.Dense(1)(outputs["pooled_output"])
    model = keras.Model(backbone.input, {"words": words, "pair": pair})
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, num_steps, warmup_target=LEARNING_RATE, warmup_steps=num_steps // 10
    )
    model.compile(
        keras.optimizers.AdamW(rate, weight_decay=0.01, global_clipnorm=1.0),
        {
            "words": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "pair": keras.losses.BinaryCrossentropy(from_logits=True),
        },
    )
    tenth = max(1, num_steps // 10)
    history = model.fit(
        masked_batches(encoder, seed), epochs=10, steps_per_epoch=tenth, verbose=0, shuffle=False
    ).history
    return backbone.get_weights(), {name: history[f"{name}_loss"][-1] for name in ("words", "pair")}


class Frequencies(keras.layers.Layer):
    """Adds a bias to logits, at first the logarithm of how frequent words are: with it the vectors of words have to say
    from the beginning what depends on a sentence, and not how frequent they are."""

    def __init__(self, counts, **kwargs):
        super().__init__(**kwargs)
        self.counts = counts

    def build(self, shape):
        logarithms = np.log((self.counts + 1.0) / np.sum(self.counts + 1.0))
        self.bias = self.add_weight(
            name="bias", shape=(shape[-1],), initializer=lambda shape, dtype: keras.ops.cast(logarithms, dtype)
        )

    def call(self, logits):
        return logits + self.bias


def token_counts(encoder):
    """Return how often each token stands on the pages."""
    ids, _, _ = encoder.encode_all([sentence for page in pages() for sentence in page])
    return np.bincount(np.concatenate(ids), minlength=encoder.tokenizer.vocabulary_size())


def masked_batches(encoder, seed):
    """Return batches without an end of two sentences, of one page or of two; of one in seven tokens, most are masked.
    The targets are what these were, and whether it is one page."""
    of_pages = pages()
    starts = np.cumsum([0, *map(len, of_pages)]).astype(np.int32)
    ids, _, _ = encoder.encode_all([sentence for page in of_pages for sentence in page])
    # Without marks, which a pair has of its own; a third of the room each at least.
    ragged = tf.ragged.constant([row[1:-1][: LENGTH // 2 - 2] for row in ids], dtype=tf.int32, row_splits_dtype="int64")
    page_of = np.repeat(np.arange(len(of_pages)), np.diff(starts)).astype(np.int32)
    known, mask = encoder.tokenizer.vocabulary_size(), encoder.tokenizer.mask_token_id
    marks = encoder.tokenizer.cls_token_id, encoder.tokenizer.sep_token_id

    def masked(number):
        seeds = [tf.stack([tf.cast(number, tf.int32), seed + index]) for index in range(7)]
        first = tf.random.stateless_uniform((BATCH,), seeds[0], maxval=len(ids), dtype=tf.int32)
        page = tf.gather(page_of, first)
        left, right = tf.gather(starts, page), tf.gather(starts, page + 1)
        share = tf.random.stateless_uniform((BATCH,), seeds[4])
        beside = left + tf.cast(share * tf.cast(right - left, tf.float32), tf.int32)
        beside = tf.where(beside == first, tf.where(beside + 1 < right, beside + 1, left), beside)
        anywhere = tf.random.stateless_uniform((BATCH,), seeds[5], maxval=len(ids), dtype=tf.int32)
        together = tf.random.stateless_uniform((BATCH,), seeds[6]) < 0.5
        second = tf.where(together, beside, anywhere)
        segments = [tf.gather(ragged, first), tf.gather(ragged, second)]
        joined, _ = tensorflow_text.combine_segments(segments, *marks)
        inputs = padded(joined, tf.cast(segments[0].row_lengths() + 2, tf.int32))
        tokens = inputs["token_ids"]
        shape = tf.shape(tokens)
        hidden = (tokens >= len(SPECIAL)) & (tf.random.stateless_uniform(shape, seeds[1]) < SHARE)
        # Eight of ten are masked, one is another word, one stays.
        how = tf.random.stateless_uniform(shape, seeds[2])
        other = tf.random.stateless_uniform(shape, seeds[3], minval=len(SPECIAL), maxval=known, dtype=tf.int32)
        seen = tf.where(hidden & (how < 0.8), mask, tf.where(hidden & (how > 0.9), other, tokens))
        weights = tf.cast(hidden, tf.float32)
        # The loss is a mean over all tokens; of the hidden ones it is to be one.
        weights *= tf.cast(tf.size(tokens), tf.float32) / tf.maximum(tf.reduce_sum(weights), 1.0)
        targets = {"words": tokens, "pair": tf.cast(page == tf.gather(page_of, second), tf.float32)[:, None]}
        return inputs | {"token_ids": seen}, targets, {"words": weights, "pair": tf.ones((BATCH,))}

    return tf.data.Dataset.range(np.iinfo(np.int64).max).map(masked).prefetch(4)
