"""A row of the battery: how a layer is made and called, and which checks have a meaning for it."""

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
    """One row: how the layer is made, what it is called with, and which checks have a meaning for it.

    Attributes:
        name: Id of the row in pytest.
        make: The constructor with the options of the row; takes `seed` where `draws`.
        widths: Width of each float input, in the order of the call.
        divergence: Whether a call adds a KL.
        draws: Whether a call in training is random.
        noise_in_attention: Whether the noise of a decoder is that of its attention, not dropout between its layers.
        tempered: Whether a draw at temperature 0 is the mean; only Gaussians have a temperature.
        dropout: Whether some of the randomness is dropout, so that training with Gaussian noise 0 is not inference.
        bad_options: Options that the constructor refuses.
        source_arguments: Inputs along the axis of the keys.
        query_mask: Name of the mask of the steps, `None` where the layer takes none.
        key_mask: Name of the mask of the keys, `None` where the layer takes none.
        has_logits: Whether something in the layer may be scaled until a logit is extreme.
        log_probabilities: Inputs that are logarithms of probabilities, -1e30 at masked keys; a layer that has them
            takes no mask of the keys.
        values_draws: Whether the layer draws nothing, but is marked by `posterior_draws` to value draws of another.
        rows_are_independent: Whether each example is one row of every input and can be a batch of its own. The nodes of
            a graph cannot.
        has_loop: Whether a call runs a loop over the steps.
        is_sparse: Whether a valid key may have a weight of 0.
        estimates_divergence: Whether the KL of a call is estimated at draws, and may be negative in training.
        learns: Whether the loss has a gradient to a weight of the layer.
        fits_float16: Whether gradients at logits of 1e4 are below 65504, also where q and p are a thousand nats apart.
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
        """Whether `keras_vattn.posterior_draws` makes it draw; dropout is no posterior."""
        return self.draws and (self.divergence or not self.dropout)

    def arrays(self, batch=BATCH, steps=STEPS, seed=0):
        generator = np.random.default_rng(seed)
        shapes = {
            name: (batch, SOURCE if name in self.source_arguments else steps, width)
            for name, width in self.widths.items()
        }
        return {name: tf.constant(generator.normal(size=shape), tf.float32) for name, shape in shapes.items()}

    def masks(self, batch=BATCH, steps=STEPS):
        """Suffix masks of every kind the layer takes; no row of the keys is fully masked."""
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
        """The output that the noise of a call enters."""
        return result

    def attention_weights(self, result):
        """The weights, (B, ..., S), in the result of a call with `return_attention_scores`."""
        return [result["weights"] if isinstance(result, dict) else result[1]]

    def dtypes(self, layer, result):
        """The names of the dtypes of a result, in its structure."""
        return tree.map_structure(lambda _: layer.compute_dtype, result)

    def output_shapes(self, layer):
        """`compute_output_shape` for the arrays of the row; posterior logits do not enter it."""
        shapes = [tuple(x.shape) for name, x in self.arrays().items() if name != "posterior_logits"]
        return layer.compute_output_shape(*shapes)

    def known_shapes(self, result):
        """What `output_shapes` is to be, for a result, or a dictionary for one: what calls differ in is `None`."""
        return {name: tuple(x.shape) for name, x in result.items()} if isinstance(result, dict) else tuple(result.shape)

    def without_noise(self, layer, arrays):
        """What a call in training gives where the noise is 0: the mean, which is the result of inference."""
        return layer(**arrays, training=False)

    def expected_divergences(self, layer, arrays, masks=()):
        """KL of each query (B, T) at inference, from the two distributions of the layer."""
        raise NotImplementedError

    def expected_loss(self, layer, arrays, masks=()):
        divergences = self.expected_divergences(layer, arrays, masks)
        return divergences.sum() / divergences.shape[0]

    def make_extreme(self, layer, arrays):
        """Scale weights or inputs until the largest logit is 1e4; returns the inputs."""
        raise NotImplementedError


def scale_logits(owner, score, arrays, scaled_input, query, key):
    largest = float(ops.max(ops.abs(ops.cast(score(query, key), "float32"))))
    for name in ("kernel", "scale"):
        weight = getattr(owner, name, None)
        if weight is not None:
            weight.assign(weight * (1e4 / largest))
            return arrays
    return {**arrays, scaled_input: arrays[scaled_input] * (1e4 / largest)}
