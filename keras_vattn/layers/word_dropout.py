import keras
from keras import ops

from keras_vattn import random
from keras_vattn.support.ids import as_integers
from keras_vattn.support.validation import integer, number


@keras.saving.register_keras_serializable(package="keras_vattn")
class WordDropout(keras.layers.Layer):
    """Replaces random word ids in training, so that a decoder cannot rely on the previous word alone.

    See Bowman et al. 2016, section 3.1. Bahuleyan et al. 2018 use a rate of 0.25. Inference does not change ids.

    Formula:
        "output"_t = {("replacement_id", "if " u_t < "rate" " and " x_t notin "protected_ids"), (x_t, "otherwise"):}
        u_t ~ "Uniform"(0, 1)

    Args:
        rate: Probability that a word is replaced, in [0, 1].
        replacement_id: Id that replaces the word, usually the id of the unknown word.
        protected_ids: Ids that are never replaced, such as the start token and padding.
        seed: Integer or `None`. Defaults to `None`.

    Call arguments:
        inputs: Integer ids x, (B, T), of any dtype.
        training: Whether to replace words.

    Returns:
        Ids of the shape and dtype of the inputs.

    Raises:
        ValueError: If `rate` is outside [0, 1], or an id is not an integer.

    Example:

    >>> layer = keras_vattn.WordDropout(1.0, replacement_id=1, protected_ids=(0, 2))
    >>> layer(keras.ops.convert_to_tensor([[2, 7, 8, 0]]), training=True)
    <tf.Tensor: shape=(1, 4), dtype=int32, numpy=array([[2, 1, 1, 0]], dtype=int32)>
    """

    def __init__(self, rate, replacement_id, protected_ids, seed=None, **kwargs):
        # Do not cast ids: half precision rounds ids above 256.
        super().__init__(autocast=False, **kwargs)
        self.rate = number("rate", rate, minimum=0, maximum=1)
        self.replacement_id = integer("replacement_id", replacement_id)
        self.protected_ids = tuple(integer("protected_ids", word_id) for word_id in protected_ids)
        self.seed = integer("seed", seed, optional=True)
        self.seed_generator = keras.random.SeedGenerator(self.seed)
        self.supports_masking = True
        self.built = True

    def call(self, inputs, training=None):
        words = as_integers("inputs", inputs)  # int64, because a GPU compares int32 in host memory
        if not training or not self.rate:
            return inputs
        noise = random.uniform(ops.shape(inputs), random.draw_seed(self.seed_generator))
        replaced = noise < self.rate
        for protected_id in self.protected_ids:
            replaced = ops.logical_and(replaced, ops.not_equal(words, protected_id))
        return ops.cast(ops.where(replaced, ops.full_like(words, self.replacement_id), words), inputs.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def compute_output_spec(self, inputs, training=None):
        return keras.KerasTensor(inputs.shape, dtype=inputs.dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "rate": self.rate,
            "replacement_id": self.replacement_id,
            "protected_ids": self.protected_ids,
            "seed": self.seed,
        }
