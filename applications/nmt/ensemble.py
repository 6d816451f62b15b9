"""Beam search with a continuous alignment averaged over draws."""

import tensorflow as tf
from keras import ops, tree

import keras_vattn


def drawn_steps(models, encoded, source_mask, num_beams, num_steps, num_draws, seed, of_sentences):
    """Return the state before the first step, of (B, n, ...) tensors, and the step, for `decoding.beam_search`.

    Its log p(y) is the predictive one, the logarithm of the mean of p(y | draw). A draw is the noise of a whole
    sentence, the same for all its beams, with a decoder state of its own. Where the decoder is fed the drawn context, a
    draw weighs as much as the probability that it gave the words before; otherwise the draws of words are independent,
    and have equal weights.

    The noise of a sentence depends on its place in the batch. B times beams times n copies of the memory (S, D) are in
    memory at once.

    Args:
        models: `Models` of a model whose attention draws.
        encoded: (B, S, D).
        source_mask: Boolean (B, S).
        num_beams: Number of beams.
        num_steps: Longest sentence in words.
        num_draws: n.
        seed: Integer.
        of_sentences: Whether the decoder is fed the drawn context.
    """
    decoder, emission, draws = models.decoder, models.emission, num_draws
    batch_size = tf.shape(encoded)[0]
    repeated = lambda count: [tf.repeat(x, count, axis=0) for x in (encoded, source_mask)]  # noqa: E731
    memory = decoder.prepare_memory(*repeated(draws))
    with keras_vattn.posterior_draws(models.training, seed=seed):
        noise = decoder.draw_noise(batch_size * draws, num_steps, memory)
    by_draw = lambda x: ops.reshape(x, (-1, draws, *ops.shape(x)[1:]))  # noqa: E731
    flat = lambda x: ops.reshape(x, (-1, *ops.shape(x)[2:]))  # noqa: E731
    # The beams of a sentence share its draws.
    noise = tree.map_structure(lambda x: flat(tf.repeat(by_draw(x), num_beams, axis=0)), noise)
    prepared = decoder.prepare_memory(*repeated(num_beams * draws))
    start = {
        "decoder": tree.map_structure(by_draw, decoder.start(batch_size * draws, memory)),
        "hidden": tf.zeros((batch_size, draws, models.emission.query_projection.units)),
        "log_weights": tf.zeros((batch_size, draws)),
    }

    def step(ids, state, position):
        log_weights = state["log_weights"]
        if of_sentences:
            # The log-probability that every draw gave the chosen word; before the first word, all the same.
            hidden = tf.cast(state["hidden"], decoder.compute_dtype)
            log_weights += emission.words(hidden[:, None], ids[:, None])[:, 0]
        log_weights = tf.nn.log_softmax(log_weights)
        embedded = models.target_embedding(tf.repeat(ids, draws))
        outputs, new_state = decoder.step(
            embedded,
            tree.map_structure(flat, state["decoder"]),
            prepared,
            tree.map_structure(lambda x: x[:, position], noise),
        )
        context = emission.value_projection(outputs["context"])[:, None, None]
        hidden = by_draw(emission.hidden(outputs["query"][:, None], context)[:, 0, 0])
        log_words = emission.words(hidden[:, None], log_weights=log_weights[:, None])[:, 0]
        weights = by_draw(ops.cast(outputs["weights"], "float32"))
        kept = {"weights": tf.reduce_sum(tf.exp(log_weights)[..., None] * weights, axis=1)}
        new_state = tree.map_structure(by_draw, new_state)
        new = {"decoder": new_state, "hidden": tf.cast(hidden, tf.float32), "log_weights": log_weights}
        same = lambda x, old: tf.ensure_shape(x, old.shape)  # noqa: E731
        return log_words, tree.map_structure(same, new, state), kept

    return start, step
