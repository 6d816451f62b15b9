import tensorflow as tf
from keras import ops, tree

from keras_vattn.decoding.decode import DEAD, allows_no_word, exclude_words, trace_entries
from keras_vattn.support.ids import as_integers
from keras_vattn.support.validation import nonnegative_number, positive_integer

RESULTS = ("ids", "lengths", "log_probabilities", "scores")


def beam_search(
    step,
    state,
    start_ids,
    end_id,
    max_length,
    num_beams,
    num_results=1,
    length_penalty=0.0,
    forbidden_ids=(),
):
    """Decode a batch by beam search with a length penalty, in a TensorFlow graph.

    In the formula, |y| is the number of words of a sentence y, including the end-of-sentence token. The exponent a is
    `length_penalty` (Wu et al. 2016, eq. 14). With one beam, the search is greedy decoding. The search ends when no
    unfinished sentence can enter the results, or at `max_length`. Sentences that are truncated at `max_length` rank
    after all finished sentences.

    Formula:
        "score"(y) = (log p(y)) / (((5 + abs(y)) / 6)^a)

    Args:
        step: Function of ids (N,), the state and the position (a scalar), where N is B times `num_beams`. It returns
            logits or log-probabilities (N, V) of the V words, the next state, and a dictionary of (N, ...) tensors to
            store for every step, such as attention weights. If `step` reads other tensors (B, ...), such as a memory,
            repeat their rows: `decoder.prepare_memory(tf.repeat(memory, num_beams, axis=0))`.
        state: Initial state, a structure of tensors (B, ...). `beam_search` repeats the tensors for the beams. `step`
            must not change their shapes or dtypes.
        start_ids: First input word of each sentence, (B,) int32.
        end_id: Id of the end-of-sentence token.
        max_length: Maximum number of words, including the end-of-sentence token.
        num_beams: Number of beams.
        num_results: Number of sentences to return per example, at most `num_beams`. Defaults to 1.
        length_penalty: The exponent a in the formula, at least 0. Defaults to 0.0.
        forbidden_ids: Ids that are never chosen, for instance of padding and unknown words. The probabilities of the
            other words are not renormalised. Defaults to `()`.

    Returns:
        A dictionary with the best R = `num_results` sentences of each example, the best sentence first. A missing
        sentence has length 0 and score -inf.

        - `"ids"`: int32 (B, R, max_length), 0 after the end.
        - `"lengths"`: int32 (B, R), including the end-of-sentence token.
        - `"log_probabilities"`: float32 (B, R), log p(y) in nats.
        - `"scores"`: float32 (B, R).
        - The tensors that `step` returned, (B, R, max_length, ...), 0 after the last word.

    Raises:
        ValueError: If an option is out of range, or if `step` returns a tensor with the name of a result, such as
            `"ids"`.

    Example:

    >>> import tensorflow as tf
    >>> table = [[0.1, 0.1, 0.1, 0.7], [0, 0, 0.6, 0.4], [0.5, 0.1, 0.1, 0.3], [1, 0, 0, 0]]
    >>> table = tf.math.log(tf.constant(table) + 1e-9)
    >>> step = lambda ids, state, position: (tf.gather(table, ids), state, {})
    >>> options = {"end_id": 3, "max_length": 4, "num_beams": 3}
    >>> results = keras_vattn.decoding.beam_search(step, (), tf.constant([1]), **options)
    >>> ids, score = results["ids"][0, 0].numpy(), float(tf.exp(results["scores"][0, 0]))
    >>> ids.tolist(), round(score, 2)
    ([3, 0, 0, 0], 0.4)
    """
    max_length = positive_integer("max_length", max_length)
    num_beams = positive_integer("num_beams", num_beams)
    num_results = positive_integer("num_results", num_results)
    if num_results > num_beams:
        raise ValueError(
            f"`num_results` must be at most `num_beams`. Received: num_results={num_results}, num_beams={num_beams}"
        )
    length_penalty = nonnegative_number("length_penalty", length_penalty)
    start_ids = as_integers("start_ids", start_ids, "int32")
    batch_size, static_size = tf.shape(start_ids)[0], start_ids.shape[0]
    rows = tf.range(batch_size)[:, None] * num_beams  # (B, 1), the first row of each example
    state = tree.map_structure(lambda x: tf.repeat(tf.convert_to_tensor(x), num_beams, axis=0), state)
    flat_state = tree.flatten(state)
    num_rows = None if static_size is None else static_size * num_beams
    entry_structure, entry_specs = trace_entries(step, (num_rows,), state, RESULTS)

    def body(position, beams, arrays, flat_state):
        logits, new_state, entries = step(
            tf.reshape(beams["ids"], [-1]), tree.pack_sequence_as(state, flat_state), position
        )
        vocabulary_size = logits.shape[-1]
        logits = tf.cast(logits, tf.float32)
        # `log_softmax` would return NaN if all logits are -inf.
        log_words = tf.where(allows_no_word(logits)[:, None], DEAD, tf.nn.log_softmax(logits))
        log_words = tf.reshape(log_words, [batch_size, num_beams, vocabulary_size])
        log_words = exclude_words(log_words, forbidden_ids)
        beams, parents = _best(_extend(beams, log_words, length_penalty, end_id), num_beams)
        chosen = tf.reshape(rows + parents, [-1])
        new_state = [
            tf.ensure_shape(tf.gather(x, chosen), old.shape)
            for x, old in zip(tree.flatten(new_state), flat_state, strict=True)
        ]
        entries = [
            tf.reshape(x, tf.concat([[batch_size, num_beams], tf.shape(x)[1:]], axis=0)) for x in tree.flatten(entries)
        ]
        arrays = {
            "ids": arrays["ids"].write(position, beams["ids"]),
            "parents": arrays["parents"].write(position, parents),
            "entries": [array.write(position, x) for array, x in zip(arrays["entries"], entries, strict=True)],
        }
        return position + 1, beams, arrays, new_state

    shape = (static_size, num_beams)
    arrays = {
        "ids": tf.TensorArray(tf.int32, max_length, element_shape=shape),
        "parents": tf.TensorArray(tf.int32, max_length, element_shape=shape),
        "entries": [tf.TensorArray(x.dtype, max_length, element_shape=(*shape, *x.shape[1:])) for x in entry_specs],
    }
    last_divisor = _divisor(max_length, length_penalty)
    num_steps, beams, arrays, _ = tf.while_loop(
        # Without a first step, the arrays of an empty batch would have no shape.
        lambda position, beams, *_: (position == 0) | _may_change(beams, num_results, last_divisor),
        body,
        (tf.constant(0), _first_beams(start_ids, num_beams), arrays, flat_state),
        maximum_iterations=max_length,
    )
    return _results(beams, arrays, num_steps, num_results, max_length, entry_structure)


def _divisor(length, length_penalty):
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** length_penalty


def _may_change(beams, num_results, last_divisor):
    ended = tf.where(beams["ended"], beams["scores"], DEAD)
    threshold = tf.math.top_k(ended, num_results).values[:, -1:]
    # Upper bound of the final score: log-probabilities never rise, and `last_divisor` is the largest divisor.
    bound = beams["log_probabilities"] / last_divisor
    return tf.reduce_any(~beams["ended"] & (bound > threshold) & (beams["log_probabilities"] > 0.5 * DEAD))


def _first_beams(start_ids, num_beams):
    """Return the initial beams, a dictionary of tensors (B, num_beams)."""
    ids = tf.repeat(start_ids[:, None], num_beams, axis=1)
    zeros = tf.zeros_like(ids, tf.float32)
    # All beams start with the same empty sentence. Without `DEAD`, they would stay equal.
    first_beam_only = tf.where(tf.range(num_beams) == 0, zeros, DEAD)
    return {
        "ids": ids,
        "log_probabilities": first_beam_only,
        "scores": first_beam_only,
        "lengths": tf.zeros_like(ids),
        "ended": tf.zeros_like(ids, tf.bool),
    }


def _extend(beams, log_words, length_penalty, end_id):
    """Return the K beams, each with its C most probable next words, a dictionary of tensors (B, K, C)."""
    count = min(beams["ids"].shape[1], log_words.shape[-1])
    log_chosen, ids = tf.math.top_k(log_words, count)
    # The only extension of a finished beam is the beam itself.
    ended = beams["ended"][..., None]
    log_chosen = tf.where(ended, tf.where(tf.range(count) == 0, 0.0, DEAD), log_chosen)
    extended = {
        "ids": tf.where(ended, 0, ids),
        "log_probabilities": beams["log_probabilities"][..., None] + log_chosen,
        "lengths": beams["lengths"][..., None] + tf.where(ended, 0, 1) + tf.zeros_like(ids),
        "ended": ended | (ids == end_id),
    }
    log_probabilities = extended["log_probabilities"]
    scores = log_probabilities / _divisor(extended["lengths"], length_penalty)
    extended["scores"] = tf.where(log_probabilities > 0.5 * DEAD, scores, DEAD)
    return extended


def _best(extended, num_beams):
    """Return the best extended beams and the indices of their parents, (B, num_beams)."""
    shape = tf.shape(extended["scores"])
    flat = {name: tf.reshape(x, [shape[0], -1]) for name, x in extended.items()}
    _, index = tf.math.top_k(flat["scores"], num_beams)
    parents = index // shape[2]
    beams = {name: tf.gather(x, index, batch_dims=1) for name, x in flat.items()}
    for name in beams:
        beams[name] = tf.ensure_shape(beams[name], (None, num_beams))
    return beams, tf.ensure_shape(parents, (None, num_beams))


def _results(beams, arrays, num_steps, num_results, max_length, entry_structure):
    dead = beams["log_probabilities"] <= 0.5 * DEAD
    # Dead beams contain no sentence.
    rank = tf.where(dead, 0, tf.where(beams["ended"], 2, 1))
    order = tf.argsort(beams["scores"], direction="DESCENDING", stable=True)
    order = tf.gather(
        order, tf.argsort(-tf.gather(rank, order, batch_dims=1), stable=True)[:, :num_results], batch_dims=1
    )
    chosen = {name: tf.gather(x, order, batch_dims=1) for name, x in beams.items()}
    dead = tf.gather(dead, order, batch_dims=1)
    lengths = tf.where(dead, 0, chosen["lengths"])
    # The array has no values for steps after the loop.
    positions = tf.range(max_length)[:, None, None]
    parents = tf.where(positions < num_steps, arrays["parents"].stack(), tf.range(beams["ids"].shape[1]))
    # `before[t]` and `after[t]`, (B, R): index of the beam of each result before and after step t.
    before = tf.scan(lambda beam, parents: tf.gather(parents, beam, batch_dims=1), parents, order, reverse=True)
    after = tf.concat([before[1:], order[None]], axis=0)
    is_within_length = positions < lengths

    def by_result(array, beam):
        x = tf.gather(array.stack(), beam, batch_dims=2)
        x = tf.where(is_within_length[(..., *[None] * (x.shape.rank - 3))], x, tf.zeros_like(x))
        return ops.moveaxis(x, 0, 2)

    minus_infinity_if_dead = lambda x: tf.where(dead, float("-inf"), x)  # noqa: E731
    return {
        "ids": by_result(arrays["ids"], after),
        "lengths": lengths,
        "log_probabilities": minus_infinity_if_dead(chosen["log_probabilities"]),
        "scores": minus_infinity_if_dead(chosen["scores"]),
        **tree.pack_sequence_as(entry_structure, [by_result(x, before) for x in arrays["entries"]]),
    }
