"""Defines a test case of the battery: how to create and call a layer, and which checks apply to the layer."""

import dataclasses

import numpy as np
import tensorflow as tf
from keras import ops, tree

BATCH, STEPS, SOURCE = 4, 3, 5
VOCABULARY = 9
KL_OPTIONS = ({"kl_weight": -1.0}, {"kl_annealing": 0.5}, {"kl_reduction": "max"})
SAME_WIDTHS = {"query": 4, "value": 4}
DIFFERENT_WIDTHS = {"query": 4, "value": 6}
WITH_POSTERIOR = {**DIFFERENT_WIDTHS, "posterior_logits": SOURCE}


@dataclasses.dataclass(frozen=True)
class Case:
    """A test case: how to create the layer, its inputs, and which checks apply to the layer.

    Attributes:
        name: Id of the test case in pytest.
        make: The constructor with the options of the case; accepts `seed` if `draws`.
        widths: Width of each float input, in the order of the arguments.
        divergence: Whether a call adds a KL.
        draws: Whether a call in training is random.
        noise_in_attention: Whether the noise of a decoder comes from its attention, not from dropout between its
            layers.
        tempered: Whether a draw at temperature 0 is the mean; only Gaussians have a temperature.
        dropout: Whether part of the noise is dropout, so that training differs from inference even with Gaussian noise
            0.
        bad_options: Options that the constructor rejects.
        source_arguments: Inputs with the axis of the keys.
        query_mask: Name of the mask of the steps, or `None`.
        key_mask: Name of the mask of the keys, or `None`.
        has_logits: Whether weights or inputs can be scaled until a logit is extreme.
        log_probabilities: Inputs that are log probabilities, -1e30 at masked keys. A layer with such inputs has no mask
            of the keys.
        values_draws: Whether the layer does not draw, but `posterior_draws` makes it evaluate draws of another layer.
        rows_are_independent: Whether each example is one row of every input and can be a batch of its own. The nodes of
            a graph cannot.
        has_loop: Whether a call runs a loop over the steps.
        is_sparse: Whether a valid key may have a weight of 0.
        estimates_divergence: Whether the KL of a call is estimated from draws, and may be negative in training.
        learns: Whether the loss has a gradient with respect to a weight of the layer.
        fits_float16: Whether gradients at logits of 1e4 are below 65504, even if the KL of q and p is a thousand nats.
    """

    name: str
    make: object
    widths: dict
    divergence: bool = False
    draws: bool = False
    dropout: bool = False
    tempered: bool = True
    noise_in_attention: bool = True
    bad_options: tuple = ()
    is_sparse: bool = False
    estimates_divergence: bool = False
    learns: bool = True
    fits_float16: bool = True

    source_arguments = ()
    query_mask = None
    key_mask = None
    has_logits = True
    log_probabilities = ()
    values_draws = False
    rows_are_independent = True
    has_loop = False
    # Whether a call with `return_attention_scores` returns the weights.
    shows_weights = True

    @property
    def draws_from_posterior(self):
        """Whether the layer draws under `keras_vattn.posterior_draws`, which does not activate dropout."""
        return self.draws and (self.divergence or not self.dropout)

    def arrays(self, batch=BATCH, steps=STEPS, seed=0):
        generator = np.random.default_rng(seed)
        shapes = {
            name: (batch, SOURCE if name in self.source_arguments else steps, width)
            for name, width in self.widths.items()
        }
        return {name: tf.constant(generator.normal(size=shape), tf.float32) for name, shape in shapes.items()}

    def masks(self, batch=BATCH, steps=STEPS):
        """Return each mask of the layer, with padding at the end. Every example has at least one valid key."""
        masks = {}
        if self.query_mask:
            lengths = np.resize([steps, max(steps - 1, 1), 1], batch)
            masks[self.query_mask] = tf.constant(np.arange(steps) < lengths[:, None])
        if self.key_mask:
            lengths = np.resize([SOURCE, SOURCE - 2, 1], batch)
            masks[self.key_mask] = tf.constant(np.arange(SOURCE) < lengths[:, None])
        return masks

    def built(self, **options):
        layer = self.make(**options)
        shapes = {name: x.shape for name, x in self.arrays().items()}
        posterior = shapes.pop("posterior_logits", None)
        layer.build(*shapes.values(), **({} if posterior is None else {"posterior_logits_shape": posterior}))
        return layer

    def outputs(self, result):
        return list(result.values()) if isinstance(result, dict) else [result]

    def floats(self, result):
        return [ops.cast(x, "float32") for x in self.outputs(result)]

    def context(self, result):
        return result

    def noisy(self, result):
        """Return the output that depends on the noise of a call."""
        return result

    def attention_weights(self, result):
        """Return the weights, (B, ..., S), from the result of a call with `return_attention_scores`."""
        return [result["weights"] if isinstance(result, dict) else result[1]]

    def dtypes(self, layer, result):
        """Return the dtype names of a result, in the structure of the result."""
        return tree.map_structure(lambda _: layer.compute_dtype, result)

    def output_shapes(self, layer):
        """Return `compute_output_shape` for the arrays of the case, except posterior logits."""
        shapes = [tuple(x.shape) for name, x in self.arrays().items() if name != "posterior_logits"]
        return layer.compute_output_shape(*shapes)

    def known_shapes(self, result):
        """Return the expected `output_shapes` of a result, with `None` for lengths that differ between calls."""
        return {name: tuple(x.shape) for name, x in result.items()} if isinstance(result, dict) else tuple(result.shape)

    def without_noise(self, layer, arrays):
        """Return the result of a call in training with noise 0: the mean, which inference returns."""
        return layer(**arrays, training=False)

    def expected_divergences(self, layer, arrays, masks=()):
        """Return the KL of each query (B, T) at inference, from the two distributions of the layer."""
        raise NotImplementedError

    def expected_loss(self, layer, arrays, masks=()):
        divergences = self.expected_divergences(layer, arrays, masks)
        return divergences.sum() / divergences.shape[0]

    def make_extreme(self, layer, arrays):
        """Scale weights or inputs until the largest logit is 1e4, and return the inputs."""
        raise NotImplementedError


def scale_logits(owner, score, arrays, scaled_input, query, key):
    largest = float(ops.max(ops.abs(ops.cast(score(query, key), "float32"))))
    for name in ("kernel", "scale"):
        weight = getattr(owner, name, None)
        if weight is not None:
            weight.assign(weight * (1e4 / largest))
            return arrays
    return {**arrays, scaled_input: arrays[scaled_input] * (1e4 / largest)}
