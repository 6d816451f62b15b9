"""Draws from the posterior predictive distribution."""

from keras_vattn.draws.sampler import Sampler


def posterior_predictive(
    model, inputs, num_samples, dropout=False, seed=None, batch_size=32, max_rows=256, posterior=True
):
    """Return draws of a model's outputs from the posterior predictive distribution.

    Every draw is one pass through the model with fresh noise. Every stochastic layer draws from its posterior, and with
    `dropout=True` every dropout layer drops as well (MC dropout, Gal and Ghahramani 2016; Fan et al. 2020, section 4.2,
    use dropout alone for the deterministic rows, and dropout with the posterior for the others). With `posterior=False`
    only dropout is random, even in a stochastic model; the difference is the uncertainty of the attention.

    To draw attention weights, make them an output of the model: `keras.Model(model.inputs, [model.output, weights])`.
    The model must call its attention with `return_attention_scores=True` from the beginning. (A second call for the
    weights alone fails in Keras 3.15, "Output with path ... is not connected".)

    `dropout=True` is not `training=True`. The model runs in inference mode, and batch normalisation uses its moving
    averages. Only layers with their own dropout (`rate`, `dropout`, `recurrent_dropout`, `feature_dropout` or
    `dropout_rate` above 0, and a seed generator), including `keras_vattn.WordDropout`, drop as in training. No Keras
    variable of the model changes: neither the moving averages, nor the layers' counts of training calls, the logged KL
    or the seed generators.

    Operations that do not depend on the draw run once per batch. The others run for several draws at a time, up to
    `max_rows` rows; the noise therefore depends on the seed, `num_samples`, `batch_size` and `max_rows`. A model runs
    one draw at a time if its examples share noise: if a layer has `mixes_examples = True` (`GraphAttention`), or the
    `noise_shape` of a Keras dropout begins with 1. Set `mixes_examples = True` in a custom layer if its output for an
    example depends on other examples or on the row index.

    Every call traces the model. For repeated calls, create a `keras_vattn.Sampler`, which traces the model once. Both
    are thread-safe, and do not change what the model computes in other threads.

    Args:
        model: A built `keras.Model`.
        inputs: Array, or list or dictionary of arrays, as for `predict`; or a `tf.data.Dataset`,
            `keras.utils.PyDataset` or generator of batches x, (x, y) or (x, y, weights). Only x is used, and batches
            keep their size. A KerasHub task with a preprocessor takes strings, as its `predict` does: a list or array
            of strings, a tuple of lists for pairs of segments, or a dataset.
        num_samples: Number of draws.
        dropout: Whether dropout is on. Defaults to `False`.
        seed: Integer, int32 tensor of shape () or (2,), or `None` for new draws in each call, which
            `keras.utils.set_random_seed` makes reproducible. Defaults to `None`.
        batch_size: Batch size, for arrays; datasets have their own. Defaults to 32.
        max_rows: Memory limit: maximum number of rows (examples times draws) in one call of the model; a call has at
            least one draw of the whole batch. 1 means one draw at a time. Defaults to 256.
        posterior: Whether stochastic layers draw, instead of using their mean. Defaults to `True`.

    Returns:
        NumPy arrays in the structure of the model's outputs, each (num_samples, N, ...).

    Raises:
        ValueError: If the model is not built, or has neither a stochastic layer that draws nor an active dropout; if a
            number is not a positive integer; if the inputs are a list of strings, but the model is not a KerasHub task
            with a preprocessor; if the inputs are empty or differ in length (pass a graph, whose inputs have no common
            first axis, as a dataset with `max_rows=1`); if an output has no batch axis, or the outputs of the batches
            differ in shape.

    Example:

    >>> x = keras.random.normal((5, 3))
    >>> inputs = keras.Input((3,))
    >>> latent = keras_vattn.GaussianLatent(4)(inputs)
    >>> model = keras.Model(inputs, keras.layers.Softmax()(latent))
    >>> draws = keras_vattn.posterior_predictive(model, x, num_samples=20, seed=1)
    >>> again = keras_vattn.posterior_predictive(model, x, num_samples=20, seed=1)
    >>> draws.shape, bool((draws == again).all())
    ((20, 5, 4), True)
    >>> keras_vattn.metrics.predictive_entropy(draws).shape
    (5,)
    """
    return Sampler(model, dropout, posterior)(inputs, num_samples, seed, batch_size, max_rows)
