import keras
from keras import ops

from keras_vattn import distributions, random
from keras_vattn.alignments.alignment import Alignment
from keras_vattn.support.validation import boolean, positive_number


@keras.saving.register_keras_serializable(package="keras_vattn")
class GumbelSoftmax(Alignment):
    """Gumbel-softmax alignment: a relaxed draw from the categorical distribution of the logits.

    See Jang et al. 2017 and Maddison et al. 2017. The code of Deng et al. 2018 calls this alignment "gumbel".

    As the temperature tau goes to 0, the weights become one-hot draws from softmax(phi), where phi are the logits.
    Inference uses softmax(phi). For larger tau, softmax(phi) differs from the mean of the weights.

    The KL of the relaxed distribution has no closed form. The layer uses the KL(q || p) of categorical distributions
    instead. With a `FixedPrior`, p is uniform over the valid keys. With a `ContextualPrior`, the network of the prior
    computes p from the keys.

    Formula:
        w_(t,s) = "softmax"_s((phi_(t,s) + g_(t,s)) / tau), quad g_(t,s) ~ "Gumbel"(0, 1)
        "KL"(q || p) = sum_s q_(t,s) log(q_(t,s) / p_(t,s)), quad q_(t,s) = "softmax"_s(phi_(t,s))

    Args:
        tau: Temperature, a positive number. It may also be a `keras.optimizers.schedules.LearningRateSchedule` whose
            steps are training calls, such as `ExponentialDecay(1.0, 1000, 0.5)`. Defaults to 1.0.
        straight_through: Whether to return one-hot draws with the gradient of the relaxed draws. Defaults to `False`.

    Raises:
        ValueError: If `tau` is not positive.

    Example:

    >>> alignment = keras_vattn.GumbelSoftmax(tau=0.5, straight_through=True)
    >>> layer = keras_vattn.Attention(alignment=alignment)
    >>> inputs = keras.ops.ones((1, 1, 2)), keras.ops.ones((1, 3, 2))
    >>> _, weights = layer(*inputs, return_attention_scores=True, training=True)
    >>> sorted(weights[0, 0].numpy().tolist())
    [0.0, 0.0, 1.0]
    """

    is_stochastic = True
    kl_of = "weights"

    def __init__(self, tau=1.0, straight_through=False):
        if isinstance(tau, dict):
            tau = keras.saving.deserialize_keras_object(tau)
        self.is_annealed = isinstance(tau, keras.optimizers.schedules.LearningRateSchedule)
        self.tau = tau if self.is_annealed else positive_number("tau", tau)
        self.straight_through = boolean("straight_through", straight_through)

    def noise(self, shape, seed):
        return {"gumbel": random.gumbel(shape, seed)}

    def at_step(self, step):
        return {"tau": ops.cast(self.tau(step), "float32")} if self.is_annealed else {}

    def perturb(self, logits, noise, keys):
        if noise is None:
            return logits
        return (logits + noise["gumbel"]) / noise.get("tau", self.tau)

    def normalize(self, perturbed, noise, keys):
        weights = keys.softmax(perturbed)
        if noise is None or not self.straight_through:
            return weights
        return weights + ops.stop_gradient(keys.one_hot(perturbed) - weights)

    def posterior(self, logits, keys, tau=None):
        return distributions.RelaxedCategorical(self.tau if tau is None else tau, keys.log_softmax(logits), keys)

    def get_config(self):
        tau = keras.saving.serialize_keras_object(self.tau) if self.is_annealed else self.tau
        return {"tau": tau, "straight_through": self.straight_through}
