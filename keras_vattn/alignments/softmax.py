import keras

from keras_vattn.alignments.alignment import Alignment
from keras_vattn.support import tfp


@keras.saving.register_keras_serializable(package="keras_vattn")
class Softmax(Alignment):
    """Deterministic alignment: weights = softmax(logits) over the valid keys (Bahuleyan et al. 2018, eq. 4).

    No noise and no KL.

    Example:

    >>> layer = keras_vattn.Attention(alignment=keras_vattn.Softmax())
    """

    def posterior(self, logits, keys):
        keys.require_dense()
        return tfp.VectorDeterministic(keys.softmax(logits))
