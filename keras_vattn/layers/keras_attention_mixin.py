import keras
from keras import ops

from keras_vattn.alignments import AlignmentInputs, DenseKeys, VariationalAlignment
from keras_vattn.layers.chunked_attention import ChunkedAttention
from keras_vattn.support.masks import combine_masks
from keras_vattn.support.products import matmul


class KerasAttentionMixin(ChunkedAttention):
    """Mixin that adds an alignment and a prior to `keras.layers.Attention` or a subclass such as `AdditiveAttention`.

    The scores of the Keras layer are the logits of the alignment. `keras_vattn.to_bayesian` converts the attention
    layers of a model into layers with this mixin. In a new model, use `keras_vattn.Attention`, which has more options.
    """

    def add_alignment(self, alignment, prior, per_head_prior=False, name=None):
        """Set the alignment and the prior. `name` is the name in the log, or `None` for the name of the layer."""
        self.set_alignment(VariationalAlignment(alignment, prior, dtype=self.dtype_policy))
        self.track_divergence(self.alignment_prior is not None, name)

    def build_prior(self, key_width):
        """Create the weights of the prior."""
        if self.alignment_prior is not None and not self.alignment_prior.built:
            self.alignment_prior.build((None, None, key_width))

    def call(self, inputs, mask=None, training=False, return_attention_scores=False, use_causal_mask=False):
        # Do not read the mask directly: `compute_mask` also checks the number of inputs and masks.
        query_mask = keras.layers.Attention.compute_mask(self, inputs, mask)
        size = self.chunk_size_of(1, ops.shape(inputs[0])[1], ops.shape(inputs[1])[1], return_attention_scores)
        if size is None:
            scored = self._score(inputs, mask, use_causal_mask)
            noise = self.draw_alignment(ops.shape(scored.logits), self.draw_seeds(training))
            output, weights, divergence = self._attend(scored, noise, inputs[1], query_mask, training)
        else:
            output, divergence = self._in_chunks(inputs, mask, size, query_mask, training, use_causal_mask)
        self.add_divergence(**divergence, training=training)
        if query_mask is not None:
            output = ops.where(query_mask[..., None], output, 0)
        return (output, weights) if return_attention_scores else output

    def _attend(self, scored, noise, value, query_mask, training, chunk=None):
        """Return the context, the weights, and the result of `divergence_terms`."""
        weights = ops.cast(self.variational.weights(scored, noise), self.compute_dtype)
        context = matmul(weights * noise["dropout"] if "dropout" in noise else weights, value)
        return context, weights, self.divergence_terms(scored, noise, scored.keys, query_mask, training, chunk=chunk)

    def _in_chunks(self, inputs, mask, size, query_mask, training, use_causal_mask):
        query, *keys = inputs
        masks = [mask[1][:, None]] if mask and mask[1] is not None else []

        def attend(queries, keys, entries, valid, chunk):
            logits = ops.cast(self._calculate_scores(query=queries[0], key=keys[-1]), "float32")
            scored = AlignmentInputs(logits, valid, self.variational.log_psi(keys[-1], valid))
            noise = self.draw_rows(ops.shape(logits), chunk.seeds, chunk.num_keys)
            context, _, divergence = self._attend(scored, noise, keys[0], None, training, chunk)
            return context, divergence

        weights = self.trainable_variables
        inputs = [query], keys, []
        return self.over_chunks(attend, size, inputs, masks, weights, training, query_mask, use_causal_mask)

    def _score(self, inputs, mask, use_causal_mask):
        key = inputs[2] if len(inputs) > 2 else inputs[1]
        logits = ops.cast(self._calculate_scores(query=inputs[0], key=key), "float32")
        value_mask = mask[1] if mask else None
        keys = DenseKeys(combine_masks(inputs[0], inputs[1], value_mask, None, None, use_causal_mask))
        return AlignmentInputs(logits, keys, self.variational.log_psi(key, keys))

    def _scored(self, arguments, options):
        call_arguments = self._bind(arguments, options)
        inputs = [ops.cast(x, self.compute_dtype) for x in call_arguments["inputs"]]
        return self._score(inputs, call_arguments["mask"], call_arguments["use_causal_mask"])
