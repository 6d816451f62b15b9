import numpy as np
import tensorflow as tf
from keras import ops, tree

from keras_vattn.decoding.samplers import GreedySampler, RandomSampler
from keras_vattn.support.ids import as_integers
from keras_vattn.support.loop import trace
from keras_vattn.support.validation import positive_integer

# Log-probability of words that are never chosen. With -inf, results would be NaN.
DEAD = -1e30


def decode(step, state, start_ids, end_id, max_length, sampler, forbidden_ids=()):
    """Decode a batch word by word, in a TensorFlow graph, until all sentences have ended or `max_length` is reached.

    Args:
        step: Function of ids (B,), the state and the position (a scalar). It returns logits (B, V), the next state, and
            a (possibly empty) dictionary of (B, ...) tensors to store for every step, such as attention weights.
        state: Initial state, a structure of tensors. `step` must not change their shapes or dtypes.
        start_ids: First input word of each sentence, (B,) int32.
        end_id: Id of the end-of-sentence token.
        max_length: Maximum number of words, including the end-of-sentence token: a positive integer or scalar tensor.
        sampler: A `GreedySampler`, a `RandomSampler`, or a function that returns ids (B,) from logits (B, V) and the
            position.
        forbidden_ids: Ids that are never chosen, for instance of padding and unknown words. The probabilities of the
            other words are not renormalised. Defaults to `()`.

    Returns:
        A dictionary. If no word is allowed at some step, the sentence has length 0 and log-probability -inf.

        - `"ids"`: int32 (B, max_length), including the end-of-sentence token, and 0 after the end.
        - `"lengths"`: int32 (B,), including the end-of-sentence token.
        - `"log_probabilities"`: float32 (B,), log-probability of the sentence in nats.
        - The tensors that `step` returned, (B, max_length, ...), 0 after the last step.

    Raises:
        ValueError: If `max_length` is not positive, or if `step` returns a tensor with the name of a result, such as
            `"ids"`.

    Example:

    >>> import tensorflow as tf
    >>> table = tf.constant([[0.0, 0, 0, 0], [0, 0, 5, 0], [0, 0, 0, 5], [0, 0, 0, 0]])
    >>> step = lambda ids, state, position: (tf.gather(table, ids), state, {})
    >>> first_ids = tf.constant([1])
    >>> decoded = keras_vattn.decoding.greedy(step, (), first_ids, 3, max_length=4)
    >>> decoded["ids"].numpy().tolist()
    [[2, 3, 0, 0]]
    """
    if not tf.is_tensor(max_length):
        max_length = positive_integer("max_length", max_length)
    start_ids = as_integers("start_ids", start_ids, "int32")
    state = tree.map_structure(tf.convert_to_tensor, state)
    entry_structure, entry_specs = trace_entries(step, start_ids.shape, state, ("ids", "lengths", "log_probabilities"))
    arrays = {
        "ids": tf.TensorArray(tf.int32, max_length, element_shape=start_ids.shape),
        "entries": [tf.TensorArray(spec.dtype, max_length, element_shape=spec.shape) for spec in entry_specs],
    }

    def body(position, ids, finished, dead, lengths, log_probabilities, arrays, flat_state):
        logits, new_state, entries = step(ids, tree.pack_sequence_as(state, flat_state), position)
        logits = tf.cast(logits, tf.float32)
        allowed_logits = exclude_words(logits, forbidden_ids)
        chosen_ids = sampler(allowed_logits, position)
        log_probability = -tf.nn.sparse_softmax_cross_entropy_with_logits(labels=chosen_ids, logits=logits)
        log_probabilities += tf.where(finished, 0.0, log_probability)
        lengths += tf.where(finished, 0, 1)
        output_ids = tf.where(finished, 0, chosen_ids)
        dead |= ~finished & allows_no_word(allowed_logits)
        finished = finished | dead | (chosen_ids == end_id)
        arrays = {
            "ids": arrays["ids"].write(position, output_ids),
            "entries": [
                array.write(position, x) for array, x in zip(arrays["entries"], tree.flatten(entries), strict=True)
            ],
        }
        return position + 1, chosen_ids, finished, dead, lengths, log_probabilities, arrays, tree.flatten(new_state)

    loop_variables = (
        tf.constant(0),
        start_ids,
        tf.zeros_like(start_ids, tf.bool),
        tf.zeros_like(start_ids, tf.bool),
        tf.zeros_like(start_ids),
        tf.zeros_like(start_ids, tf.float32),
        arrays,
        tree.flatten(state),
    )
    position, _, _, dead, lengths, log_probabilities, arrays, _ = tf.while_loop(
        # Without a first step, the arrays of an empty batch would have no shape.
        lambda position, ids, finished, *_: (position == 0) | ~tf.reduce_all(finished),
        body,
        loop_variables,
        maximum_iterations=max_length,
    )

    # If the loop ends before `max_length`, the arrays have no values for the remaining steps.
    def zero_after_end(array):
        x = ops.swapaxes(array.stack(), 0, 1)
        condition = tf.range(max_length) < position
        return tf.where(condition[(None, ..., *[None] * (x.shape.rank - 2))], x, tf.zeros_like(x))

    entries = [zero_after_end(array) for array in arrays["entries"]]
    return {
        "ids": tf.where(dead[:, None], 0, zero_after_end(arrays["ids"])),
        "lengths": tf.where(dead, 0, lengths),
        "log_probabilities": tf.where(dead, float("-inf"), log_probabilities),
        **tree.pack_sequence_as(entry_structure, entries),
    }


def greedy(step, state, start_ids, end_id, max_length, forbidden_ids=()):
    """Decode by choosing the most probable word at every step. Arguments, result and errors are as in `decode`.

    Example:

    >>> import tensorflow as tf
    >>> table = tf.constant([[0.0, 0, 0, 0], [0, 0, 5, 0], [0, 0, 0, 5], [0, 0, 0, 0]])
    >>> step = lambda ids, state, position: (tf.gather(table, ids), state, {})
    >>> decoded = keras_vattn.decoding.greedy(step, (), tf.constant([1]), 3, max_length=4)
    >>> decoded["lengths"].numpy().tolist()
    [2]
    """
    return decode(step, state, start_ids, end_id, max_length, GreedySampler(), forbidden_ids)


def sample(
    step,
    state,
    start_ids,
    end_id,
    max_length,
    seed,
    temperature=1.0,
    top_k=None,
    top_p=None,
    forbidden_ids=(),
):
    """Decode by drawing every word from the model's distribution. See `decode` and `RandomSampler` for the arguments.

    Example:

    >>> import tensorflow as tf
    >>> table = tf.constant([[0.0, 0, 0, 0], [0, 0, 5, 0], [0, 0, 0, 5], [0, 0, 0, 0]])
    >>> step = lambda ids, state, position: (tf.gather(table, ids), state, {})
    >>> options = {"end_id": 3, "max_length": 4, "seed": 0, "top_k": 1}
    >>> decoded = keras_vattn.decoding.sample(step, (), tf.constant([1]), **options)
    >>> decoded["ids"].numpy().tolist()
    [[2, 3, 0, 0]]
    """
    sampler = RandomSampler(seed, temperature, top_k, top_p)
    return decode(step, state, start_ids, end_id, max_length, sampler, forbidden_ids)


def allows_no_word(logits):
    """Return booleans (...): whether all V words of the logits (..., V) are excluded."""
    return tf.reduce_max(logits, axis=-1) <= DEAD


def exclude_words(log_words, forbidden_ids):
    """Return logits or log-probabilities (..., V) with `DEAD` for forbidden words."""
    if not len(forbidden_ids):
        return log_words
    return tf.where(np.isin(np.arange(log_words.shape[-1]), forbidden_ids), DEAD, log_words)


def trace_entries(step, ids_shape, state, results):
    """Return the structure of the tensors that `step` stores, and a list of their TensorSpecs.

    Raise ValueError if the name of a tensor is in `results`.
    """
    structure, specs = trace(
        lambda ids, state: step(ids, state, tf.constant(0))[2],
        tf.TensorSpec(ids_shape, tf.int32),
        tree.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), state),
    )
    duplicates = set(results) & set(structure)
    if duplicates:
        raise ValueError(f"`step` must not return reserved names. Received: {', '.join(sorted(duplicates))}")
    return structure, specs
