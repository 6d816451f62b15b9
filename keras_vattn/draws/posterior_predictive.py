"""Sample outputs of a model from the posterior predictive distribution."""

from keras_vattn.draws.sampler import Sampler


def posterior_predictive(
    model, inputs, num_samples, dropout=False, seed=None, batch_size=32, max_rows=256, posterior=True
):
    """Return outputs of a model, sampled from the posterior predictive distribution.

    Every draw is one pass through the model with new noise. Stochastic layers sample from their posterior, or use their
    mean with `posterior=False`. With `dropout=True`, dropout layers are active too (MC dropout, Gal and Ghahramani
    2016). Fan et al. 2020, section 4.2, use dropout in all models, and also the posterior in stochastic models.

    To sample attention weights, make them an output of the model: `keras.Model(model.inputs, [model.output, weights])`.
    Set `return_attention_scores=True` in the call that computes the context. A second call of the layer, only for the
    weights, raises an error in Keras 3.15 ("Output with path ... is not connected").

    With `dropout=True`, the model still runs in inference mode, so batch normalization uses its moving averages.
    Dropout is active in layers that have a seed generator, and one of these attributes above 0: `rate`, `dropout`,
    `recurrent_dropout`, `feature_dropout`, `dropout_rate`. Sampling does not change any Keras variable.

    The noise depends on the seed, `num_samples`, `batch_size` and `max_rows`. Operations that do not depend on the
    noise run once per batch. One call of the model computes several draws, up to `max_rows` rows. If examples share
    noise, a call computes only one draw. They share noise if a layer has `mixes_examples = True`, as `GraphAttention`
    has, or if the `noise_shape` of a Keras dropout begins with 1. Set `mixes_examples = True` in your own layer if its
    output for an example depends on other examples or on the row index.

    Every call traces the model. For repeated calls, create a `keras_vattn.Sampler`, which traces the model once.
    `posterior_predictive` and `Sampler` are thread-safe.

    Args:
        model: A built `keras.Model`.
        inputs: Arrays, as for `predict`; or a `tf.data.Dataset`, `keras.utils.PyDataset` or generator of batches x,
            (x, y) or (x, y, weights). Only x is used. For a KerasHub task with a preprocessor, inputs may be strings,
            as in `predict`. If the inputs have no common first axis, as in a graph, pass a dataset and set
            `max_rows=1`.
        num_samples: Number of draws.
        dropout: Whether layers apply dropout. Defaults to `False`.
        seed: Integer, int32 tensor of shape () or (2,), or `None` for new noise in each call. With `None`,
            `keras.utils.set_random_seed` makes the noise reproducible. Defaults to `None`.
        batch_size: Number of examples per batch of arrays. Batches of other inputs are not split. Defaults to 32.
        max_rows: Memory limit: maximum number of rows (examples times draws) in one call of the model. A call computes
            at least one draw of the whole batch, so `max_rows=1` means one draw at a time. Defaults to 256.
        posterior: Whether stochastic layers sample, instead of using their mean. Defaults to `True`.

    Returns:
        NumPy arrays (num_samples, N, ...), in the same structure as the model's outputs.

    Raises:
        ValueError: If the model is not built, or has no active random layer. If a number is not a positive integer. If
            the inputs are empty or differ in length. If the inputs are a list of strings, and the model has no
            preprocessor. If an output has no batch axis, or its shape differs between batches.

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
