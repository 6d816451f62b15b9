from keras import ops

from keras_vattn import random
from keras_vattn.alignments import AlignmentInputs, DenseKeys
from keras_vattn.layers.chunked_attention import ChunkedAttention
from keras_vattn.support.masks import zero_unseen


class AttentionSteps(ChunkedAttention):
    """Base class of `keras_vattn.Attention`, with separate methods for the parts of a call.

    A recurrent decoder calls `prepare_memory` and `draw_noise` before its loop, `attend` inside the loop, and `account`
    after the loop. A subclass has the attributes `score` and `context`.
    """

    def prepare_memory(self, value, key=None, mask=None):
        """Return a dictionary of the tensors that depend only on the memory.

        Args:
            value: (B, S, D).
            key: (B, S, Dk), or `None` to use `value`.
            mask: Boolean tensor that broadcasts to (B, T, S), or `None`.
        """
        if mask is None and value.shape[1] == 0:
            # Without a mask, queries would count as valid although they have no key.
            mask = ops.zeros((1, 1, 0), "bool")
        keys = DenseKeys(mask)
        value, key = zero_unseen(mask, value, key)
        key = value if key is None else key
        return {
            "projected_keys": self.score.project_memory(key, keys),
            "value": value,
            "keys": keys,
            "prior_mean": self.context.prior_parameters(value, keys) if self.context.has_divergence else None,
            "log_psi": self.variational.log_psi(key, keys),
        }

    def draw_noise(self, batch_size, num_queries, memory, seeds, num_keys=None):
        """Return a nested dictionary of (B, T, ...) tensors: the noise of all queries, drawn with `seeds`."""
        value = memory["value"]
        noise = self.draw_rows((batch_size, num_queries, ops.shape(value)[1]), seeds, num_keys)
        if seeds.noise is None:
            return noise
        context_noise = self.context.noise((batch_size, num_queries, value.shape[-1]), random.fold_in(seeds.noise, 1))
        if context_noise is not None:
            noise["context"] = _where_any_valid(memory["keys"], context_noise)
        return noise

    def attend(self, query, memory, noise, training=False, posterior_logits=None, state=None):
        """Return a dictionary with the results of a call. The method adds no loss and changes no state.

        - `"context"`: the context, (B, T, D).
        - `"mean"`: the mean of the context, (B, T, D). The weights of this mean include dropout.
        - `"weights"` and `"logits"`: (B, T, S), before dropout.
        - `"parameters"`: the parameters of the posterior of a Gaussian context that is sampled. Otherwise empty.
        - `"expected_weights"`: (B, T, S), the weights for `"logits"` without noise or dropout. Present only if the call
          draws weights, has posterior logits, or applies dropout.

        Args:
            query: (B, T, Dq).
            memory: Result of `prepare_memory`.
            noise: Result of `draw_noise`, or its slice for these queries.
            training: Whether this is a training call, which draws at temperature 1.
            posterior_logits: (B, T, S), finite float32, or `None`.
            state: State of the score, (B, ...), or `None` for a score without a state.
        """
        state = {} if state is None else {"state": state}
        logits = ops.cast(self.score.score(query, memory["projected_keys"], **state), "float32")
        scored = self.alignment_inputs(memory, logits, posterior_logits)
        weights = ops.cast(self.variational.weights(scored, noise), self.compute_dtype)
        weights_after_dropout = weights * noise["dropout"] if "dropout" in noise else weights
        mean = self.context.call(weights_after_dropout, memory["value"])
        attended = {"context": mean, "mean": mean, "weights": weights, "logits": logits, "parameters": {}}
        if "alignment" in noise or posterior_logits is not None:
            attended["expected_weights"] = ops.cast(self.variational.expected_weights(scored), self.compute_dtype)
        elif "dropout" in noise:
            attended["expected_weights"] = weights
        if "context" in noise:
            parameters = self.context.posterior_parameters(mean)
            temperature = self.draw_temperature(training, self.context.temperature)
            attended["parameters"] = parameters
            context_noise = noise["context"]
            if self.score.hides_keys:
                context_noise = _where_any_valid(scored.keys, context_noise)
            attended["context"] = self.context.sample(mean, parameters, context_noise, temperature)
        return attended

    def alignment_inputs(self, memory, logits, posterior_logits):
        keys, log_psi = memory["keys"], memory["log_psi"]
        if self.score.hides_keys:
            keys = keys.without_hidden(logits)
            log_psi = None if log_psi is None else keys.log_softmax(log_psi)
        return AlignmentInputs(logits, keys, log_psi, posterior_logits)

    def account(self, attended, memory, noise, query_mask=None, training=None, posterior_logits=None):
        """Add the KL of all queries with one `add_loss` per call. A layer without a KL adds no loss.

        Args:
            attended: Result of `attend`, stacked over all queries.
            memory: Result of `prepare_memory`.
            noise: Result of `draw_noise`.
            query_mask: Boolean (B, T) or `None`.
            training: The argument `training` of the call.
            posterior_logits: As in `attend`.
        """
        divergence = self.divergence(attended, memory, noise, query_mask, training, posterior_logits)
        self.add_divergence(**divergence, training=training)

    def divergence(self, attended, memory, noise, query_mask, training, posterior_logits, chunk=None):
        scored, context, keys = None, None, memory["keys"]
        if self.context.has_divergence:
            mean = attended["mean"]
            q = self.context.distribution(mean, attended["parameters"] or self.context.posterior_parameters(mean))
            p = self.context.prior_distribution(mean, memory["prior_mean"])
            context = q.kl_divergence(p), mean.shape[-1]
        if "logits" in attended:
            scored = self.alignment_inputs(memory, attended["logits"], posterior_logits)
            keys = scored.keys
        return self.divergence_terms(scored, noise, keys, query_mask, training, context=context, chunk=chunk)


def _where_any_valid(keys, context_noise):
    """Return the noise, with zeros for queries without a valid key."""
    any_valid = keys.any_valid()
    if any_valid is None:
        return context_noise
    return ops.where(any_valid[..., None], context_noise, ops.zeros_like(context_noise))
