import contextlib
import threading

import tensorflow as tf
from keras import ops, tree

from keras_vattn.alignments import DenseKeys
from keras_vattn.layers.alignment_layer import AlignmentLayer
from keras_vattn.support.gradients import custom_gradient
from keras_vattn.support.masks import both
from keras_vattn.support.query_chunks import in_chunks
from keras_vattn.support.rows import rows_of
from keras_vattn.support.validation import integer

# An example's number of scores from which "auto" takes parts, and that of a part.
SMALLEST, LARGEST_PART = 2**24, 2**20
# At most so many shares of a causal attention, each with the keys up to its own end; more would take longer to trace.
CAUSAL_SHARES = 8

_CALL = threading.local()


class PartsOfQueries(AlignmentLayer):
    """Base class of the attentions that can take their queries in parts, so that nothing of size T times S is kept.

    A subclass sets `query_chunk_size` by `chunk_size`, asks `part_size` in a call, and calls `over_parts`. All parts
    of a call draw from its seeds, so `draw_noise` asks `noise_seed` for them.
    """

    query_chunk_size = None

    def part_size(self, num_heads, length, num_keys, return_attention_scores=False, heads_of_part=1):
        """Return the number of queries in a part of a call, `None` for a call without parts.

        Raises:
            ValueError: For weights of a layer whose calls are in parts.
        """
        size = self.query_chunk_size
        if size == "auto":
            known = all(isinstance(x, int) for x in (num_heads, length, num_keys))
            if return_attention_scores or not known or num_heads * length * num_keys < SMALLEST:
                return None
            size = max(4, LARGEST_PART // (num_keys * heads_of_part))
        if size is not None and return_attention_scores:
            raise ValueError(
                "In parts of the queries there are never all weights: `return_attention_scores=True` needs "
                'query_chunk_size=None or "auto", which then has no parts. `alignment_statistics` and '
                f"`posterior_distribution` compute them without parts. Received: query_chunk_size={size}"
            )
        if size is None or not isinstance(length, int):
            return size
        # One query, a step of a decoder, has no parts.
        return min(size, length) if length > 1 else None

    def noise_seed(self, training):
        seeds = getattr(_CALL, "seeds", None)
        return self.new_seed(training) if seeds is None or seeds.layer is not self else seeds.next(training)

    def new_seed(self, training):
        """Return what `noise_seed` does in a call without parts."""
        return super().noise_seed(training)

    def over_parts(
        self,
        attend,
        draw,
        size,
        inputs,
        masks,
        training,
        query_mask=None,
        is_causal=False,
        window=None,
        has_divergence=True,
        whole=(),
        num_heads=1,
    ):
        """Return the context (G, ..., T, D) of all queries, and what `add_divergence` takes.

        A part is of one group: an example, or a head of it.

        Args:
            attend: Function of the inputs of a part and of its `DenseKeys`, in which draws are those of the part.
                Returns the context of the part, and the result of `divergence_of`.
            draw: Draws the noise of one query and one key, for the seeds that this takes.
            size: Number of queries of a part.
            inputs: Lists of tensors, queries (G, ..., T, D), keys (G, ..., S, D) and entries (G, ..., T, S).
            masks: List of booleans that broadcast to (B, ..., T, S), with an axis of heads where groups are heads.
            training: The call's `training`.
            query_mask: Boolean (B, T) or `None`.
            is_causal: Whether a query sees only the positions up to its own.
            window: A query sees the positions less than this from its own, on both sides; `None` for all.
            has_divergence: Whether there is a KL.
            whole: Widths of draws that have no axis of keys.
            num_heads: Number of the groups of an example.
        """
        num_groups, length, num_keys = *(ops.shape(inputs[0][0])[axis] for axis in (0, -2)), ops.shape(inputs[1][0])[-2]
        masks = [_with_rows_beyond(x, length, size) for x in masks]
        seeds = _Seeds(self, training)
        with seeds.taken_now():
            draw()

        def visible(group, first, seen, rank):
            # With the axes before.
            places = (tf.cast(first, tf.int32) + tf.range(size))[(None,) * (rank - 2) + (..., None)]
            valid = places >= tf.range(seen) if is_causal else None
            valid = valid if window is None else both(valid, tf.abs(places - tf.range(seen)) < window)
            head = None if num_heads == 1 else group % num_heads
            for mask in masks:
                valid = both(valid, _of_part(mask, group // num_heads, head, first, size, seen))
            return DenseKeys(valid)

        def share(queries, start, stop, seen, names):
            """Return results for the queries from start to stop, who see the first `seen` keys."""
            cut = (seen, num_keys) if isinstance(seen, int) and seen != num_keys else None
            if cut is not None and seen in whole:
                seen, cut = num_keys, None
            _, keys, entries = inputs
            of_rows = [x[..., start:stop, :] for x in queries], [x[..., start:stop, :seen] for x in entries]

            def step(of_rows, keys, group, first):
                (queries, entries), first = of_rows, first + start
                valid = visible(group, first, seen, len(queries[0].shape))
                rows = rows_of(group, num_groups, first, length, cut, is_even=num_heads % 2 == 0)
                with seeds.taken_again(), rows:
                    context, divergence = attend(queries, keys, entries, valid)
                results = {"context": context, "divergence": _columns(divergence)}
                return {name: results[name] for name in names}

            return in_chunks(step, of_rows, [x[..., :seen, :] for x in keys], num_groups, stop - start, size, self)

        def of_all(*names):
            queries, found = inputs[0], []
            for each in _shares(length, num_keys, size) if is_causal else [(0, length, num_keys)]:
                if found:
                    # One after the other, or the memory of all shares would be there at once.
                    first, *others = tree.flatten(found[-1])
                    query, first = _one_after_the_other(queries[0], first)
                    queries, found[-1] = [query], tree.pack_sequence_as(found[-1], [first, *others])
                found.append(share(queries, *each, names))
            return found[0] if len(found) == 1 else tree.map_structure(lambda *x: tf.concat(x, -2), *found)

        if training or tf.executing_eagerly():
            found = of_all("context", "divergence")
        else:
            # A prediction leaves out the KL, which nothing asks for.
            found = of_all("context") | (of_all("divergence") if has_divergence else {"divergence": {}})
        by_head = {name: ops.reshape(x, (-1, num_heads, length)) for name, x in found["divergence"].items()}
        divergence = {"divergence": None} | {name: ops.sum(x, axis=1) for name, x in by_head.items()}
        # A query counts where it has a key in a head.
        valid = divergence["valid"] > 0.5 if "valid" in divergence else None
        return found["context"], divergence | {"valid": both(valid, query_mask)}


class _Seeds:
    """The seeds of a call, which every part of it takes, and takes again in the gradient."""

    def __init__(self, layer, training):
        self.layer, self._taken, self._next = layer, [], None
        self._request = None if training else (layer.draws, layer.drops(training))

    @contextlib.contextmanager
    def taken_now(self):
        outer, _CALL.seeds = getattr(_CALL, "seeds", None), self
        try:
            yield
        finally:
            _CALL.seeds = outer

    @contextlib.contextmanager
    def taken_again(self):
        self._next = iter(self._taken)
        with self.taken_now():
            yield
        is_over = self._request not in (None, (self.layer.draws, self.layer.drops(False)))
        if is_over or next(self._next, None) is not None:
            raise ValueError(
                "Parts of the queries are drawn again in the gradient: take it inside of `posterior_draws`, or "
                f"`drawn_from`, as the call. Received: layer={self.layer.name}, after the end of that"
            )

    def next(self, training):
        if self._next is None:
            self._taken.append((self.layer.new_seed(training),))
            return self._taken[-1][0]
        for (seed,) in self._next:
            return seed
        raise ValueError(
            "In parts of the queries a KL has a closed form, or is estimated at the draws of the weights. The KL to "
            f"this prior needs query_chunk_size=None. Received: prior={type(self.layer.prior).__name__}"
        )


def chunk_size(value):
    """Return `query_chunk_size`: `None`, "auto" or a positive integer; ValueError otherwise."""
    expected = 'a positive integer, "auto"'
    return value if value == "auto" else integer("query_chunk_size", value, 1, optional=True, expected=expected)


def _with_rows_beyond(mask, length, size):
    """Return a mask with a row for each query, and rows for the end of the last part; as it is with one for all."""
    if mask.shape[-2] == 1:
        return mask
    if mask.shape[-2] is None:
        *others, _, num_keys = ops.shape(mask)
        mask = ops.broadcast_to(mask, (*others, length, num_keys))
    return tf.pad(mask, [*[[0, 0]] * (len(mask.shape) - 2), [0, size], [0, 0]])


def _of_part(mask, example, head, first, size, seen):
    """Return the entries of a part of a mask (B or 1, [H or 1,] T or 1, S or 1)."""
    shape = tf.shape(mask, tf.int64)
    if mask.shape[0] != 1:
        mask = mask[tf.minimum(example, shape[0] - 1)][None]
    if head is not None and mask.shape[1] != 1:
        mask = mask[:, tf.minimum(head, shape[1] - 1)][:, None]
    if mask.shape[-2] != 1:
        shape = ops.shape(mask)
        begin = [*[0] * (len(shape) - 2), tf.cast(first, tf.int32), 0]
        mask = tf.slice(mask, begin, (*shape[:-2], size, shape[-1]))
    return mask[..., :seen]


def _columns(divergence):
    """Return what `divergence_of` does as columns (B, T, 1), without what there is not."""
    of_query = divergence["divergence"]
    if of_query is None:
        return {}
    there = {name: ops.cast(x, "float32") for name, x in divergence.items() if x is not None}
    return {name: ops.broadcast_to(x, ops.shape(of_query))[..., None] for name, x in there.items()}


def _one_after_the_other(x, before):
    """Return x once `before` is there, and `before`, whose gradient waits for that of x."""

    @custom_gradient
    def tied(x, before):
        def gradient(of_x, of_before):
            with tf.control_dependencies([of_x]):
                return of_x, tf.identity(of_before)

        with tf.control_dependencies([before]):
            return (tf.identity(x), tf.identity(before)), gradient

    return tied(x, before)


def _shares(length, num_keys, size):
    """Return the first query, the end and the number of keys of each share of a causal attention."""
    if not (isinstance(length, int) and isinstance(num_keys, int)):
        return [(0, length, num_keys)]
    of_share = size * -(-length // (size * CAUSAL_SHARES))
    ends = [*range(of_share, length, of_share), length]
    return [(start, stop, min(stop, num_keys)) for start, stop in zip([0, *ends], ends, strict=False)]
