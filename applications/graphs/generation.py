"""Classification with a trained model, as an exportable module: features and edges in, probabilities out.

Shapes: N nodes, D features, E edges, C classes, S draws.
"""

import tensorflow as tf

import keras_vattn
from applications.common.serving import Untracked, in_graph
from applications.graphs.options import MODELS


class Classifier(tf.Module):
    """The exported module of a `Run`. Features are as in the file, before they are scaled; edges are sources and
    targets, one for each direction, without self-loops and each listed once."""

    def __init__(self, run):
        super().__init__(name="classifier")
        model, options = run.models.prediction, run.options
        self.classes = tf.constant(run.codec["classes"])
        self.variables_of_model = [variable.value for variable in model.variables]
        self._model, self._scaling = Untracked(model), options.graph.scaling
        if self._scaling == "columns":
            scaling = run.codec["scaling"]
            self._mean, self._sd = (tf.constant(scaling[name], tf.float32) for name in ("mean", "sd"))
        draws = MODELS[options.model].distribution is not None
        # A deterministic attention has dropout alone to draw.
        drops = not draws and options.network.drops
        self._noise = Untracked(keras_vattn.ModelNoise(model, drops) if draws or drops else None)
        features = tf.TensorSpec([None, run.codec["width"]], tf.float32)
        edges, integer = tf.TensorSpec([None, 2], tf.int32), tf.TensorSpec([], tf.int32)
        self.predict = in_graph(features, edges)(self._predict)
        self.sample = in_graph(features, edges, integer, integer)(self._sample)

    @property
    def names(self):
        """Names of the endpoints, the default one first."""
        return ("predict",) if self._noise.value is None else ("predict", "sample")

    def _inputs(self, features, edges):
        if self._scaling == "rows":
            features = tf.math.divide_no_nan(features, tf.reduce_sum(tf.abs(features), axis=1, keepdims=True))
        elif self._scaling == "columns":
            features = (features - self._mean) / self._sd
        inside = (edges >= 0) & (edges < tf.shape(features)[0])
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(inside), ["an edge leads to no node"])]):
            return {"features": features, "edges": tf.identity(edges)}

    def _predict(self, features, edges):
        """Return the probabilities (N, C) and the name of the most probable class (N,) of each node."""
        return self._classified(self._probabilities(self._inputs(features, edges)))

    def _sample(self, features, edges, num_samples, seed):
        """Return the mean of draws (N, C), its class, its entropy and the mutual information of the draws, (N,) in
        nats, and the draws (S, N, C)."""
        noise, seed, inputs = self._noise.value, keras_vattn.random.as_seed(seed), self._inputs(features, edges)

        def draw(number):
            with noise.drawn_from(keras_vattn.random.fold_in(seed, number)):
                return self._probabilities(inputs)

        draws = tf.map_fn(draw, tf.range(num_samples), fn_output_signature=tf.float32)
        mean = tf.reduce_mean(draws, axis=0)
        entropy = _entropy(mean)
        information = entropy - tf.reduce_mean(_entropy(draws), axis=0)
        return self._classified(mean) | {"entropy": entropy, "mutual_information": information, "draws": draws}

    def _probabilities(self, inputs):
        return tf.nn.softmax(tf.cast(self._model.value(inputs, training=False), tf.float32))

    def _classified(self, probabilities):
        return {"probabilities": probabilities, "classes": tf.gather(self.classes, tf.argmax(probabilities, axis=1))}


def _entropy(probabilities):
    return -tf.reduce_sum(tf.math.xlogy(probabilities, probabilities), axis=-1)
