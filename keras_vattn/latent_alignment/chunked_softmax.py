"""Compute an output layer, softmax(inputs W + b), in chunks of rows, for logits that do not fit in memory.

The forward pass stores the probabilities of the first chunk. The backward pass recomputes the probabilities of the
other chunks. Rows whose upstream gradient is 0, such as the rows of masked words, are sorted last, and the backward
pass skips chunks that contain only such rows.

Indices are int64, because most GPU kernels of TensorFlow keep int32 tensors in host memory. Gradients are scattered in
float32, because TensorFlow has no GPU kernel that scatters half precision.
"""

import dataclasses

import tensorflow as tf

from keras_vattn.support.gradients import custom_gradient

# For smaller probabilities, log(p) is imprecise.
SMALLEST = 1e-30


def chosen_log_likelihood(inputs, kernel, bias, targets, chunk_size, row_mask=None, num_blocks=1):
    """Return the log-likelihood of the target of every row under softmax(inputs W + b), float32 (R,).

    No gradient flows to the targets.

    Args:
        inputs: (R, D), in the dtype of the matrix products.
        kernel: W, float32 (D, V).
        bias: b, float32 (V,).
        targets: Labels in [0, V), int64 (R,); or word weights, float32 (N, V), where row r uses `targets[r % N]` and R
            is a multiple of N.
        chunk_size: Maximum number of rows whose logits are in memory at once.
        row_mask: Boolean (R,), or `None` for all rows. For masked rows, the result and its gradient are 0.
        num_blocks: Number of blocks of rows in the first chunk. Blocks that contain only masked rows are skipped.
    """

    @custom_gradient
    def function(inputs, kernel, bias):
        word_targets = _Labels(targets) if targets.dtype.is_integer else _Votes(targets)
        output = _Output(inputs, tf.cast(kernel, inputs.dtype), tf.cast(bias, inputs.dtype), word_targets)
        num_rows = tf.shape(inputs)[0]
        num_chunks = tf.maximum(ceiling(num_rows, chunk_size), 1)
        size = ceiling(num_rows, num_chunks)
        selected = tf.ones((num_rows,), tf.bool) if row_mask is None else row_mask
        chunks, num_selected = _selected_first(selected, num_chunks, size)
        block_size = ceiling(size, num_blocks)
        blocks = [slice(block * block_size, (block + 1) * block_size) for block in range(num_blocks)]
        # Without a row mask, `tf.cond` would only prevent fusion and memory reuse.
        skips_blocks = row_mask is not None and num_blocks > 1
        if not skips_blocks:
            first_chosen, probabilities = output.score_rows(chunks[0])
            first_probabilities = [probabilities] if num_blocks == 1 else [probabilities[block] for block in blocks]
        else:
            results = [output.score_rows_if(block.start < num_selected, chunks[0][block]) for block in blocks]
            first_chosen = tf.concat([chosen for chosen, _ in results], axis=0)
            first_probabilities = [probabilities for _, probabilities in results]

        def body(chunk, chosen):
            log_likelihood, _ = output.score_rows(chunks[chunk])
            return chunk + 1, tf.tensor_scatter_nd_update(chosen, [[chunk]], log_likelihood[None])

        chosen = tf.pad(first_chosen[None], [[0, num_chunks - 1], [0, 0]])
        (chosen,) = _loop(num_chunks > 1, lambda chunk, _: chunk * size < num_selected, body, 1, chosen)
        positions = _argsort(tf.reshape(chunks, (-1,))[:num_rows])  # index of each row in the flattened chunks
        log_likelihood = tf.where(selected, tf.gather(tf.reshape(chosen, (-1,)), positions), 0.0)

        def backward(upstream):
            upstream = tf.where(selected, upstream, 0.0)
            first = tf.gather(upstream, chunks[0])
            totals = tuple(tf.zeros_like(x, tf.float32) for x in (inputs, kernel, bias))
            with tf.name_scope("gradient/words"):
                for block, probabilities in zip(blocks, first_probabilities, strict=True):
                    add = output.add_block if num_blocks > 1 else output.add_rows
                    totals = add(totals, chunks[0][block], probabilities, first[block])
                remaining = tf.where(positions < tf.cast(size, tf.int64), 0.0, upstream)
                d_inputs, d_kernel, d_bias = output.add_remaining(totals, remaining, num_chunks, size)
                return tf.cast(d_inputs, inputs.dtype), d_kernel, d_bias

        return log_likelihood, backward

    return function(*(tf.convert_to_tensor(x) for x in (inputs, kernel, bias)))


@dataclasses.dataclass(frozen=True)
class _Labels:
    labels: tf.Tensor

    def log_likelihood(self, logits, probabilities, rows):
        """Return log p(target) for row indices (r,), from the logits and probabilities of these rows, (r, V)."""
        labels = tf.gather(self.labels, rows)
        chosen = tf.gather(probabilities, labels, batch_dims=1)

        def from_logits():
            largest, log_largest = _largest(logits, probabilities)
            return tf.gather(logits, labels, batch_dims=1) - largest + log_largest

        # `from_logits` is always precise, but slower.
        return tf.cond(tf.reduce_all(chosen > SMALLEST), lambda: tf.math.log(chosen), from_logits)

    def logits_gradient(self, probabilities, rows):
        """Return the gradient (r, V) of the negative log-likelihoods with respect to the logits."""
        labels = tf.gather(self.labels, rows)
        return probabilities - tf.one_hot(labels, tf.shape(probabilities)[1], dtype=probabilities.dtype)


@dataclasses.dataclass(frozen=True)
class _Votes:
    weights: tf.Tensor

    def row_weights(self, rows):
        """Return the word weights (r, V) of the rows, and their sums (r,)."""
        weights = tf.gather(self.weights, rows % tf.shape(self.weights, tf.int64)[0])
        return weights, tf.reduce_sum(weights, axis=1)

    def log_likelihood(self, logits, probabilities, rows):
        weights, total = self.row_weights(rows)
        largest, log_largest = _largest(logits, probabilities)
        return tf.reduce_sum(weights * (logits - largest[:, None]), axis=1) + total * log_largest

    def logits_gradient(self, probabilities, rows):
        weights, total = self.row_weights(rows)
        return tf.cast(total[:, None] * tf.cast(probabilities, tf.float32) - weights, probabilities.dtype)


@dataclasses.dataclass(frozen=True)
class _Output:
    inputs: tf.Tensor
    kernel: tf.Tensor
    bias: tf.Tensor
    targets: _Labels | _Votes

    def score_rows(self, rows):
        """Return the log-likelihoods of the rows' targets, float32 (r,), and the word probabilities (r, V)."""
        logits = tf.nn.bias_add(tf.matmul(tf.gather(self.inputs, rows), self.kernel), self.bias)
        logits = tf.cast(logits, tf.float32)
        probabilities = tf.nn.softmax(logits)
        log_likelihood = self.targets.log_likelihood(logits, probabilities, rows)
        return log_likelihood, tf.cast(probabilities, self.inputs.dtype)

    def score_rows_if(self, needed, rows):
        """Call `score_rows` if `needed`. Otherwise, return zeros."""
        shape = tf.stack([tf.shape(rows)[0], self.kernel.shape[1]])
        return tf.cond(
            needed,
            lambda: self.score_rows(rows),
            lambda: (tf.zeros_like(rows, tf.float32), tf.zeros(shape, self.inputs.dtype)),
        )

    def add_rows(self, totals, rows, probabilities, upstream):
        """Return `totals` plus the gradients of the rows (r,). Probabilities are (r, V), upstream is (r,)."""
        d_inputs, d_kernel, d_bias = totals
        # Multiplying the large logits gradient (r, V) by `upstream` would be slower.
        upstream = -tf.cast(upstream, probabilities.dtype)[:, None]
        logits_gradient = self.targets.logits_gradient(probabilities, rows)
        d_rows = upstream * tf.matmul(logits_gradient, self.kernel, transpose_b=True)
        weighted = tf.concat([upstream * tf.gather(self.inputs, rows), upstream], axis=1)
        d_weights = tf.cast(tf.matmul(weighted, logits_gradient, transpose_a=True), tf.float32)
        return (
            tf.tensor_scatter_nd_add(d_inputs, rows[:, None], tf.cast(d_rows, tf.float32)),
            d_kernel + d_weights[:-1],
            d_bias + d_weights[-1],
        )

    def add_block(self, totals, rows, probabilities, upstream):
        """Call `add_rows` if any upstream gradient is not 0. Otherwise, return `totals`."""
        return tf.cond(
            tf.reduce_any(tf.not_equal(upstream, 0.0)),
            lambda: self.add_rows(totals, rows, probabilities, upstream),
            lambda: totals,
        )

    def add_remaining(self, totals, upstream, num_chunks, size):
        """Add the gradients of all rows whose upstream gradient is not 0, with recomputed probabilities."""
        selected = tf.not_equal(upstream, 0.0)
        chunks, num_selected = _selected_first(selected, num_chunks, size)

        def body(chunk, *totals):
            rows = chunks[chunk]
            _, probabilities = self.score_rows(rows)
            return chunk + 1, *self.add_rows(totals, rows, probabilities, tf.gather(upstream, rows))

        return _loop(num_chunks > 1, lambda chunk, *_: chunk * size < num_selected, body, 0, *totals)


def _largest(logits, probabilities):
    """Return the largest logit and the largest log p of each row, both (r,)."""
    return tf.reduce_max(logits, axis=1), tf.math.log(tf.reduce_max(probabilities, axis=1))


def _selected_first(selected, num_chunks, size):
    """Return row indices (num_chunks, size), selected rows first, and the number of selected rows."""
    order = _argsort(tf.cast(~selected, tf.int64))
    order = tf.concat([order, tf.zeros((num_chunks * size - tf.shape(order)[0],), tf.int64)], axis=0)
    num_selected = tf.reduce_sum(tf.cast(selected, tf.int64))
    return tf.reshape(order, tf.stack([num_chunks, size])), tf.cast(num_selected, tf.int32)


def _argsort(values):
    return tf.cast(tf.argsort(values, stable=True), tf.int64)


def _loop(is_needed, condition, body, start, *variables):
    # Without `tf.cond`, XLA would copy the variables even if no iteration runs.
    return tf.cond(
        is_needed,
        lambda: tuple(tf.while_loop(condition, body, (tf.constant(start), *variables), parallel_iterations=1)[1:]),
        lambda: tuple(variables),
    )


def ceiling(number, divisor):
    """Return number / divisor, rounded up."""
    return -(-number // divisor)
