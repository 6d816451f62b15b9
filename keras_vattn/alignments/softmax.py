import keras

from keras_vattn.alignments.alignment import Alignment
from keras_vattn.support import tfp


@keras.saving.register_keras_serializable(package="keras_vattn")
class Softmax(Alignment):
    """Deterministic alignment: a softmax of the logits phi over the valid keys (Bahuleyan et al. 2018, eq. 4).

    Formula:
        w_(t,s) = "softmax"_s(phi_(t,s)) = exp(phi_(t,s)) / (sum_(s') exp(phi_(t,s')))

    Example:

    >>> layer = keras_vattn.Attention(alignment=keras_vattn.Softmax())
    """

    def posterior(self, logits, keys):
        keys.require_dense()
        return tfp.VectorDeterministic(keys.softmax(logits))
