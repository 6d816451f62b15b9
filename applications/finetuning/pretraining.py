"""Pretrain a tiny BERT to predict masked words in text from Python's standard library."""

import functools

import keras
import tensorflow as tf

from applications.common.batches import prefetched
from applications.finetuning.data import own_length, padded
from applications.finetuning.embedded import pretraining_sentences
from applications.finetuning.tokens import TextEncoder

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCABULARY_SIZE = 2500
# With a constant seed, all runs start from the same pretrained weights.
SEED = 0
LENGTH, BATCH, SHARE, LEARNING_RATE = 48, 64, 0.15, 2e-3
SIZES = {"num_layers": 2, "num_heads": 4, "hidden_dim": 96, "intermediate_dim": 256, "max_sequence_length": 128}


@functools.cache
def tokenizer():
    """Return a WordPiece tokenizer with a vocabulary of the most frequent words and word pieces."""
    import keras_hub

    # Computing the vocabulary of all sentences would take as long as the pretraining.
    dataset = tf.data.Dataset.from_tensor_slices(pretraining_sentences()[::4]).batch(256)
    vocabulary = keras_hub.tokenizers.compute_word_piece_vocabulary(
        dataset, VOCABULARY_SIZE, lowercase=True, reserved_tokens=list(SPECIAL)
    )
    # The vocabulary file has one piece per line, so it cannot store pieces with white space.
    pieces = [piece for piece in vocabulary if piece == piece.strip() and piece != "##"]
    # Without `name`, the stored name would depend on how many tokenizers the process has created.
    return keras_hub.models.BertTokenizer(pieces, lowercase=True, name="tokenizer")


def new_backbone(dropout=0.0):
    """Return the tiny BERT with random weights."""
    import keras_hub

    return keras_hub.models.BertBackbone(tokenizer().vocabulary_size(), dropout=dropout, name="backbone", **SIZES)


@functools.cache
def pretrained_weights(num_steps):
    """Return the weights of the tiny BERT after `num_steps` steps of pretraining."""
    import keras_hub

    keras.utils.set_random_seed(SEED)
    backbone = new_backbone()
    positions = keras.Input((None,), dtype="int32", name="mask_positions")
    head = keras_hub.layers.MaskedLMHead(token_embedding=backbone.token_embedding, intermediate_activation="gelu")
    words = head(backbone.output["sequence_output"], positions)
    model = keras.Model(backbone.input | {"mask_positions": positions}, words)
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, num_steps, warmup_target=LEARNING_RATE, warmup_steps=num_steps // 10
    )
    model.compile(
        keras.optimizers.AdamW(rate, weight_decay=0.01, global_clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        # XLA shortens a step by 25%, but compiling takes as long as dozens of steps.
        jit_compile=num_steps > 100,
    )
    batches = masked_batches(TextEncoder(tokenizer(), LENGTH), SEED)
    model.fit(batches, steps_per_epoch=num_steps, verbose=0, shuffle=False)
    return backbone.get_weights()


def masked_batches(encoder, seed):
    """Return an endless dataset of batches, in which about one token in seven is masked.

    The targets are the masked tokens. The masks depend only on `seed` and the batch number.
    """
    tokenizer = encoder.tokenizer
    ids, _, _ = encoder.encode_all(pretraining_sentences())
    num_positions = round(SHARE * LENGTH)

    def masked(number, rows):
        batch = tf.gather(ids, rows)
        inputs = padded(batch, tf.fill([BATCH], LENGTH), own_length(batch, LENGTH))
        words = inputs["token_ids"]
        order, choice, random_words = tf.unstack(
            tf.random.stateless_uniform([3, *tf.unstack(tf.shape(words))], [seed, number])
        )
        # KerasHub's mask generator has no seed. `positions` is a random order, with the special tokens last.
        ordinary = words >= len(SPECIAL)
        positions = tf.argsort(tf.where(ordinary, order, 1.0))
        num_masked = tf.math.ceil(SHARE * tf.reduce_sum(tf.cast(ordinary, "float32"), axis=1, keepdims=True))
        is_masked = tf.argsort(positions) < tf.cast(num_masked, "int32")
        # As in BERT: 80% mask tokens, 10% random tokens, 10% unchanged.
        random_words = tf.cast(random_words * tokenizer.vocabulary_size(), "int32")
        replacements = tf.where(choice < 0.8, tokenizer.mask_token_id, tf.where(choice < 0.9, random_words, words))
        positions = positions[:, :num_positions]
        weights = tf.cast(tf.gather(is_masked, positions, batch_dims=1), "float32")
        inputs |= {"token_ids": tf.where(is_masked, replacements, words), "mask_positions": positions}
        # Keras averages over all positions; these weights average over the masked positions.
        return inputs, tf.gather(words, positions, batch_dims=1), weights / tf.reduce_mean(weights)

    rows = tf.data.Dataset.range(ids.nrows()).shuffle(ids.nrows(), seed=seed).repeat().batch(BATCH)
    return prefetched(rows.enumerate().map(masked), 4)
