import keras
from keras import ops

from keras_vattn import random
from keras_vattn.alignments.alignment import Alignment
from keras_vattn.support import tfp


@keras.saving.register_keras_serializable(package="keras_vattn")
class Hard(Alignment):
    """Hard alignment: a draw selects one source position with weight 1 (Xu et al. 2015, section 4.1).

    Inference uses softmax(phi) of the logits phi, which is the mean of the weights.

    A draw has no gradient with respect to the logits. `keras_vattn.RewardToGo` adds a gradient that trains the score
    layer. Pass the weights, the logits and the log-likelihood of the words to `RewardToGo`. If no state of the model
    depends on the draw, use `keras_vattn.CategoricalAttention` instead. `CategoricalAttention` offers estimators with
    lower variance, and supports a KL.

    Formula:
        z_t ~ "Categorical"("softmax"_s(phi_(t,s))), quad w_t = "one-hot"(z_t)

    Example:

    >>> layer = keras_vattn.Attention(alignment=keras_vattn.Hard(), seed=1)
    >>> inputs = keras.ops.ones((1, 1, 2)), keras.ops.ones((1, 3, 2))
    >>> _, weights = layer(*inputs, return_attention_scores=True, training=True)
    >>> sorted(weights[0, 0].numpy().tolist())
    [0.0, 0.0, 1.0]
    """

    is_stochastic = True
    # The gradient of a KL would be wrong: the KLs of later steps depend on the draw, which has no gradient.
    takes_divergence = False

    def noise(self, shape, seed):
        return {"gumbel": random.gumbel(shape, seed)}

    def perturb(self, logits, noise, keys):
        return logits if noise is None else logits + noise["gumbel"]

    def normalize(self, perturbed, noise, keys):
        return keys.softmax(perturbed) if noise is None else ops.stop_gradient(keys.one_hot(perturbed))

    def posterior(self, logits, keys):
        keys.require_dense()
        return tfp.OneHotCategorical(logits=keys.mask_out(logits), dtype="float32")
