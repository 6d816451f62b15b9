from functools import partial
from typing import NamedTuple

import keras
import tensorflow as tf
from keras import ops

from keras_vattn.alignments import DenseKeys
from keras_vattn.layers.alignment_layer import AlignmentLayer
from keras_vattn.support.keras_private import in_xla
from keras_vattn.support.masks import both
from keras_vattn.support.query_chunks import map_chunks
from keras_vattn.support.validation import integer

# With "auto": the number of scores per example that needs chunks, and the approximate number of scores in a chunk.
SMALLEST, LARGEST_CHUNK = 2**24, 2**20


class Chunk(NamedTuple):
    """Index and seeds of a query chunk.

    Attributes:
        number: Index of the chunk within its call, int64 ().
        seeds: The `Seeds` of the chunk.
        num_keys: Number of keys of the whole call, or `None` if the chunk reads all keys.
    """

    number: object
    seeds: object
    num_keys: object


class ChunkedAttention(AlignmentLayer):
    """Base class of attention layers that process the queries in chunks, so that no T x S array is stored.

    A subclass sets `query_chunk_size` to the result of `chunk_size`. The method `call` of the subclass calls
    `chunk_size_of`. If the result is not `None`, `call` uses `over_chunks`.
    """

    query_chunk_size = None

    def chunk_size_of(self, num_heads, length, num_keys, return_attention_scores=False, heads_of_chunk=1):
        """Return the number of queries per chunk in a call, or `None` for a call without chunks.

        Raises:
            ValueError: If weights are requested from a call with chunks.
        """
        size = self.query_chunk_size
        if size == "auto":
            are_static = all(isinstance(x, int) for x in (num_heads, length, num_keys))
            if return_attention_scores or not are_static or num_heads * length * num_keys < SMALLEST:
                return None
            size = max(4, LARGEST_CHUNK // (num_keys * heads_of_chunk))
        if size is not None and return_attention_scores:
            raise ValueError(
                "`return_attention_scores=True` cannot be used with query chunks, which never store all weights. Use "
                'query_chunk_size=None or "auto", or call `alignment_statistics` or `posterior_distribution` instead. '
                f"Received: query_chunk_size={size}"
            )
        if size is None or not isinstance(length, int):
            return size
        return min(size, length) if length > 1 else None

    def over_chunks(
        self,
        attend,
        size,
        inputs,
        masks,
        weights,
        training,
        query_mask=None,
        is_causal=False,
        window=None,
        num_heads=1,
    ):
        """Return the context (G, ..., T, D) of all queries, and the arguments of `add_divergence`.

        A chunk contains queries of one group. Each of the G groups is an example, or one head of an example.

        Args:
            attend: Function that returns the context of one chunk and the result of `divergence_terms`. The arguments
                of `attend` are the queries, keys and logits of the chunk, a `DenseKeys`, and a `Chunk`.
            size: Number of queries per chunk.
            inputs: Three lists of tensors: queries (G, ..., T, D), keys (G, ..., S, D) and logits (G, ..., T, S).
            masks: List of boolean masks that broadcast to (B, ..., T, S), with an axis of heads if groups are heads.
            weights: The trainable variables that `attend` reads.
            training: The argument `training` of the call.
            query_mask: Boolean (B, T) or `None`.
            is_causal: Whether query t attends only to the positions up to t.
            window: `None`, or an integer: query t attends only to positions at a distance below `window` from t.
            num_heads: Number of groups per example.
        """
        queries, keys, entries = inputs
        length, num_keys, rank = ops.shape(queries[0])[-2], ops.shape(keys[0])[-2], len(queries[0].shape)
        masks = [_pad_mask_rows(x, length, size) for x in masks]
        # Without `convert_to_tensor`, `tf.cast` may return the variable, and each iteration would read it again.
        values = {id(x): (x, tf.cast(tf.convert_to_tensor(x.value), x.dtype)) for x in self.variables}
        weights = [values.pop(id(x)) for x in weights]
        seeds = self.draw_seeds(training)
        skips_hidden_keys = is_causal and not in_xla()

        def visible_keys(group, first, num_visible):
            """Return the `DenseKeys` of a chunk for the first `num_visible` keys."""
            query_positions = (first + tf.range(size))[(None,) * (rank - 2) + (..., None)]
            key_positions = tf.range(num_keys)[:num_visible]
            valid = query_positions >= key_positions if is_causal else None
            valid = valid if window is None else both(valid, tf.abs(query_positions - key_positions) < window)
            head = None if num_heads == 1 else group % num_heads
            for mask in masks:
                valid = both(valid, _slice_mask(mask, group // num_heads, head, first, size)[..., :num_visible])
            return DenseKeys(valid)

        def step(names, rows, keys, shared, group, chunk):
            first = chunk * size
            num_visible = tf.minimum(first + size, num_keys) if skips_hidden_keys else num_keys
            rows = [ops.moveaxis(x, 0, -2)[None] for x in rows]
            entries = [x[..., :num_visible] for x in rows[len(queries) :]]
            number = tf.cast(group, tf.int64) * 2**32 + tf.cast(chunk, tf.int64)
            state = [*values.values(), *((x, new) for (x, _), new in zip(weights, shared, strict=True))]
            with keras.StatelessScope(state, initialize_variables=False):
                context, divergence = attend(
                    rows[: len(queries)],
                    [x[None, ..., :num_visible, :] for x in keys],
                    entries,
                    visible_keys(group, first, num_visible),
                    Chunk(number, seeds.fold_in(number), num_keys if skips_hidden_keys else None),
                )
            results = {"context": context, "divergence": _columns(divergence)}
            return {name: tf.nest.map_structure(lambda x: ops.moveaxis(x[0], -2, 0), results[name]) for name in names}

        rows = [ops.moveaxis(x, -2, 1) for x in queries + entries]
        results, shared = {}, [x for _, x in weights]
        # With one loop, an inference graph would compute the KL even if nothing reads the KL.
        in_one_pass = training or tf.executing_eagerly()
        for names in [("context", "divergence")] if in_one_pass else [("context",), ("divergence",)]:
            results |= map_chunks(partial(step, names), rows, keys, shared, size)
        by_head = {name: ops.reshape(x, (-1, num_heads, length)) for name, x in results["divergence"].items()}
        divergence = {"divergence": None} | {name: ops.sum(x, axis=1) for name, x in by_head.items()}
        # "valid" is the number of heads that have a valid key.
        valid = divergence["valid"] > 0.5 if "valid" in divergence else None
        return ops.moveaxis(results["context"], 1, -2), divergence | {"valid": both(valid, query_mask)}


def chunk_size(value):
    """Return `value` if it is `None`, "auto" or a positive integer. Raise ValueError otherwise."""
    expected = 'a positive integer, "auto"'
    return value if value == "auto" else integer("query_chunk_size", value, 1, optional=True, expected=expected)


def _pad_mask_rows(mask, length, size):
    """Return a mask with one row per query, padded for the last chunk. Return a mask with a single row unchanged."""
    if mask.shape[-2] == 1:
        return mask
    if mask.shape[-2] is None:
        *batch_axes, _, num_keys = ops.shape(mask)
        mask = ops.broadcast_to(mask, (*batch_axes, length, num_keys))
    return tf.pad(mask, [*[[0, 0]] * (len(mask.shape) - 2), [0, size], [0, 0]])


def _slice_mask(mask, example, head, first, size):
    """Return the rows of a mask (B or 1, [H or 1,] T or 1, S or 1) for a chunk."""
    shape = ops.shape(mask)
    if mask.shape[0] != 1:
        mask = mask[tf.minimum(example, shape[0] - 1)][None]
    if head is not None and mask.shape[1] != 1:
        mask = mask[:, tf.minimum(head, shape[1] - 1)][:, None]
    if mask.shape[-2] != 1:
        shape = ops.shape(mask)
        mask = tf.slice(mask, [*[0] * (len(shape) - 2), first, 0], (*shape[:-2], size, shape[-1]))
    return mask


def _columns(divergence):
    """Return the values of `divergence_terms` that are not `None`, as columns (B, T, 1)."""
    query_divergence = divergence["divergence"]
    if query_divergence is None:
        return {}
    columns = {name: ops.cast(x, "float32") for name, x in divergence.items() if x is not None}
    return {name: ops.broadcast_to(x, ops.shape(query_divergence))[..., None] for name, x in columns.items()}
