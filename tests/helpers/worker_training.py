"""A model with a KL, for training with several workers."""

import json

import keras
import numpy as np
import tensorflow as tf

import keras_vattn

# Batches of 4, 4 and 1; the last batch leaves a worker without a row.
INPUTS = np.random.default_rng(0).normal(size=(9, 5, 3)).astype("float32")
TARGETS = np.random.default_rng(1).normal(size=(9, 1)).astype("float32")


def batches():
    return tf.data.Dataset.from_tensor_slices((INPUTS, TARGETS)).batch(4)


def compiled_model(noise=False, loss_scale=False):
    keras.utils.set_random_seed(3)
    inputs = keras.Input((5, 3))
    annealing = keras_vattn.LinearAnnealing(4)
    layer = keras_vattn.MultiHeadAttention(
        2, 4, alignment="weibull", prior="contextual", kl_annealing=annealing, seed=1, name="attention"
    )
    if not noise:
        layer.noise_seed = lambda training: None
    model = keras.Model(inputs, keras.layers.Dense(1)(layer(inputs, inputs)[:, 0]))
    optimizer = keras_vattn.fast.FusedAdam(0.01, global_clipnorm=0.05)
    optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=8.0) if loss_scale else optimizer
    model.compile(optimizer, "mse", metrics=["mae"], jit_compile=False)
    return model


def trained(strategy, model):
    """Train for three epochs; return the history, the final figures and the final weights."""
    dataset = keras_vattn.distribute.shard(batches(), strategy)
    history = model.fit(dataset, validation_data=dataset, epochs=3, verbose=0, shuffle=False).history
    figures = model.evaluate(dataset, verbose=0, return_dict=True)
    return history, figures, [weight.numpy() for weight in model.weights]


def results_of_worker():
    """Train the model as one of two workers, and print the results as JSON."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    results = {}
    with strategy.scope():
        model = compiled_model()
        try:
            model.fit(batches(), verbose=0, shuffle=False)
            results["plain"] = None
        except Exception as error:
            results["plain"] = type(error).__name__
        model = keras_vattn.distribute.prepare(compiled_model())
        noisy = compiled_model(noise=True)
    results["history"], results["figures"], weights = trained(strategy, model)
    results["weights"] = [weight.tolist() for weight in weights]
    results["calls"] = int(model.get_layer("attention").training_calls.numpy())
    # Both workers pass the same rows.
    outputs = strategy.run(tf.function(lambda: noisy(INPUTS[:2], training=True)))
    results["draws"] = strategy.gather(outputs, axis=0).numpy().tolist()
    print("RESULT" + json.dumps(results))
