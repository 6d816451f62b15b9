"""A tiny BERT, pretrained on masked words of text that comes with Python, so that fine-tuning starts from something."""

import functools

import keras
import numpy as np
import tensorflow as tf

from applications.finetuning.data import padded
from applications.finetuning.embedded import sentences
from applications.finetuning.tokens import TextEncoder

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCABULARY_SIZE = 4000
LENGTH, BATCH, SHARE = 48, 32, 0.15
SIZES = {"num_layers": 2, "num_heads": 4, "hidden_dim": 96, "intermediate_dim": 256, "max_sequence_length": 128}


@functools.cache
def tokenizer():
    """Return a WordPiece tokenizer whose vocabulary is the most frequent words and parts of words."""
    import keras_hub

    dataset = tf.data.Dataset.from_tensor_slices(sentences()).batch(256)
    vocabulary = keras_hub.tokenizers.compute_word_piece_vocabulary(
        dataset, VOCABULARY_SIZE, lowercase=True, reserved_tokens=list(SPECIAL)
    )
    return keras_hub.models.BertTokenizer(vocabulary, lowercase=True)


def new_backbone(dropout=0.0):
    """Return the transformer, its weights random."""
    import keras_hub

    return keras_hub.models.BertBackbone(tokenizer().vocabulary_size(), dropout=dropout, **SIZES)


@functools.cache
def pretrained_weights(num_steps, seed):
    """Return the weights of the transformer after so many steps of masked words, and the loss of the last tenth."""
    keras.utils.set_random_seed(seed)
    backbone, encoder = new_backbone(), TextEncoder(tokenizer(), LENGTH)
    hidden = backbone.output["sequence_output"]
    hidden = keras.layers.Dense(SIZES["hidden_dim"], "gelu")(hidden)
    embedding = backbone.token_embedding
    logits = keras.layers.Lambda(lambda x: embedding(x, reverse=True))(hidden)
    model = keras.Model(backbone.input, logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    rate = keras.optimizers.schedules.CosineDecay(0.0, num_steps, warmup_target=2e-3, warmup_steps=num_steps // 10)
    model.compile(keras.optimizers.AdamW(rate, weight_decay=0.01, clipnorm=1.0), loss)
    history = model.fit(
        masked_batches(encoder, seed), epochs=10, steps_per_epoch=max(1, num_steps // 10), verbose=0, shuffle=False
    )
    return backbone.get_weights(), float(history.history["loss"][-1])


def masked_batches(encoder, seed):
    """Return batches without an end: of one in seven tokens, most are masked; what they were is the target."""
    ids, _, _ = encoder.encode_all(sentences())
    ragged = tf.ragged.constant(ids, dtype=tf.int32, row_splits_dtype="int64")
    known, mask = encoder.tokenizer.vocabulary_size(), encoder.tokenizer.mask_token_id

    def masked(number):
        seeds = [tf.stack([tf.cast(number, tf.int32), seed + index]) for index in range(4)]
        rows = tf.random.stateless_uniform((BATCH,), seeds[0], maxval=len(ids), dtype=tf.int32)
        inputs = padded(tf.gather(ragged, rows), tf.fill((BATCH,), LENGTH))
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
        return inputs | {"token_ids": seen}, tokens, weights

    return tf.data.Dataset.range(np.iinfo(np.int64).max).map(masked).prefetch(4)
