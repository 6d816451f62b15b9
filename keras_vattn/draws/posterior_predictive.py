"""Draws from the posterior predictive distribution."""

from keras_vattn.draws.sampler import Sampler


def posterior_predictive(
    model, inputs, num_samples, dropout=False, seed=None, batch_size=32, max_rows=256, posterior=True
):
    """Return draws of a model's outputs from the posterior predictive distribution.

    Every draw is one pass through the model under fresh noise: every stochastic layer draws from its posterior, and
    with `dropout=True` every dropout drops as well (MC dropout, Gal and Ghahramani 2016; Fan et al. 2020, section 4.2,
    use dropout alone for the deterministic rows and dropout with the posterior for the others). With `posterior=False`
    only dropout is random, in a stochastic model too: the difference is the uncertainty of the attention.

    To draw attention weights, make them an output of the model: `keras.Model(model.inputs, [model.output, weights])`,
    where the model has called its attention with `return_attention_scores=True` from the beginning. (A second call for
    the weights alone fails in Keras 3.15, "Output with path ... is not connected".)

    `dropout=True` is not `training=True`. The model runs as at inference, batch normalisation with its moving
    averages. Only layers with a dropout of their own (`rate`, `dropout`, `recurrent_dropout`, `feature_dropout` or
    `dropout_rate` above 0 and a seed generator), including `keras_vattn.WordDropout`, drop as in training. No Keras
    variable of the model changes, whatever the options: not the averages, the layers' counts of training calls, the KL
    in the log or the seed generators.

    What no draw changes is computed once a batch. The rest runs for several draws of a batch together, repeated on the
    first axis, as far as `max_rows` allows: the noise depends on the seed, `num_samples`, `batch_size` and `max_rows`.
    A model whose examples share noise runs one draw at a time: it has a layer with `mixes_examples` (`GraphAttention`),
    or a Keras dropout whose `noise_shape` begins with 1. Set `mixes_examples = True` in a layer of your own whose
    output for an example depends on the other examples or on the number of its row.

    Every call traces the model. For repeated calls make one `keras_vattn.Sampler`, which traces it once. Threads may
    call both at once; the model behaves as always in every other thread.

    Args:
        model: A built `keras.Model`.
        inputs: Array, or list or dictionary of arrays, as for `predict`; or a `tf.data.Dataset`,
            `keras.utils.PyDataset` or generator of batches x, (x, y) or (x, y, weights), of which x is used, with
            batches as they are. A KerasHub task with a preprocessor takes strings as its `predict` does: a list or
            array of them, a tuple of lists for pairs of segments, or a dataset.
        num_samples: Number of draws.
        dropout: Whether dropout is on. Defaults to `False`.
        seed: `None` (fresh draws each time, which `keras.utils.set_random_seed` repeats), an integer or an int32 tensor
            of shape () or (2,). Defaults to `None`.
        batch_size: Number of examples in a batch of arrays; a dataset has its own. Defaults to 32.
        max_rows: The memory limit: the largest number of rows (examples times draws) that go through the model
            together; at least one draw of a batch does. 1 means one draw at a time. Defaults to 256.
        posterior: Whether stochastic layers draw, instead of using their mean. Defaults to `True`.

    Returns:
        NumPy arrays in the structure of the model's outputs, each (num_samples, N, ...).

    Raises:
        ValueError: If the model is not built, or has no stochastic layer that draws and no dropout that is on; if a
            number is not a positive integer; if the inputs are a list of strings and the model is no KerasHub task with
            a preprocessor; if the inputs are empty or differ in length (a graph, whose inputs have no common first
            axis, comes as a dataset with `max_rows=1`); if an output has no batch axis, or batches give outputs of
            different shapes.

    Example:

    >>> x = keras.random.normal((5, 3))
    >>> inputs = keras.Input((3,))
    >>> model = keras.Model(inputs, keras.layers.Softmax()(keras_vattn.GaussianLatent(4)(inputs)))
    >>> draws = keras_vattn.posterior_predictive(model, x, num_samples=20, seed=1)
    >>> draws.shape, bool((draws == keras_vattn.posterior_predictive(model, x, num_samples=20, seed=1)).all())
    ((20, 5, 4), True)
    >>> keras_vattn.metrics.predictive_entropy(draws).shape
    (5,)
    """
    return Sampler(model, dropout, posterior)(inputs, num_samples, seed, batch_size, max_rows)
