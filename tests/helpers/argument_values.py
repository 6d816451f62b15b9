"""Provides a value other than the default for every argument of every public class, for config round trips."""

import inspect
import numbers

import keras

import keras_vattn
from keras_vattn import Attention, FixedPrior, GaussianLatent, LinearAnnealing, PredictedContext
from keras_vattn.layers.multi_head_mixin import NEWER_ARGUMENTS

# Required arguments of the classes. Keras itself stores `name`, `dtype` and `trainable` of layers.
REQUIRED = {
    "attention": Attention("additive", name="attention"),
    "center": 10,
    "cycle_length": 10,
    "key_dim": 3,
    "latent": GaussianLatent(2, name="latent"),
    "num_heads": 2,
    "num_steps": 10,
    "protected_ids": (0,),
    "rate": 0.5,
    "replacement_id": 1,
    "slope": 0.5,
    "units": 4,
    "vocabulary_size": 9,
}
OTHER = {
    "activation": "elu",
    "activity_regularizer": "l2",
    "alignment": "lognormal",
    "alpha": 2.0,
    "attention": Attention("bilinear", name="attention"),
    "attention_axes": (1,),
    "baseline": None,
    "baseline_decay": 0.5,
    "beta": 2.0,
    "bias_constraint": "non_neg",
    "bias_initializer": "ones",
    "bias_regularizer": "l2",
    "cell": "gru",
    "center": 20,
    "chunk_size": 7,
    "concatenate": False,
    "context": "gaussian",
    "context_prior": "mean",
    "cycle_length": 20,
    "detach_prior": True,
    "distribution": "lognormal",
    "dtype": "float64",
    "dropout": 0.25,
    "entropy_weight": 0.5,
    "estimator": "gumbel",
    "feature_dropout": 0.25,
    "feeding": "expected",
    "filters": 3,
    "final_value": 0.5,
    "flash_attention": True,
    "free_bits": 0.5,
    "free_nats": 0.5,
    "from_logits": False,
    "hidden_units": 3,
    "ignore_class": 0,
    "inference": "marginal",
    "informed": False,
    "initial_log_scale": -1.0,
    "initial_value": 0.25,
    "inner": "bilinear",
    "k": 3.0,
    "kernel_constraint": "non_neg",
    "kernel_initializer": "he_normal",
    "kernel_regularizer": "l2",
    "kernel_size": 5,
    "key_dim": 5,
    "kind": "elbo",
    "kl_annealing": LinearAnnealing(7),
    "kl_estimator": "sampled",
    "kl_of": "weights",
    "kl_reduction": "mean",
    "kl_weight": 0.5,
    "label_smoothing": 0.25,
    "latent": GaussianLatent(3, name="latent"),
    "location": "cumulative",
    "max_length": 7,
    "max_log_concentration": 5.0,
    "mean": 0.5,
    "min_log_concentration": -5.0,
    "min_log_scale": -2.0,
    "name": "other",
    "negative_slope": 0.5,
    "num_cycles": 3,
    "num_heads": 4,
    "num_layers": 2,
    "num_samples": 3,
    "num_steps": 20,
    "objective": "marginal",
    "output_shape": (6,),
    "parameterization": "raw",
    "per_head_prior": True,
    "position": "predictive",
    "prediction": PredictedContext(4, name="prediction"),
    "prior": FixedPrior(name="prior"),
    "prior_over": "nodes",
    "protected_ids": (0, 2),
    "query": "previous",
    "query_chunk_size": 5,
    "ramp_fraction": 0.25,
    "rate": 0.25,
    "recurrent_initializer": "he_normal",
    "reduction": "sum",
    "replacement_id": 2,
    "residual": True,
    "scale": "paper",
    "scaled": True,
    "score": "additive",
    "seed": 3,
    "self_loops": False,
    "sigma": 0.75,
    "sliding_window": 3,
    "slope": 0.25,
    "start_step": 5,
    "straight_through": True,
    "tau": 0.75,
    "temperature": 0.5,
    "top_k": 2,
    "units": 7,
    "use_bias": False,
    "use_gate": True,
    "value_dim": 5,
    "vocabulary_size": 11,
    "warm_start_steps": 3,
    "window": 6,
    ("GaussianContext", "prior"): "mean",
}

# Other arguments that a value requires. The key is an argument of any class, or (class name, argument).
_CONTEXTUAL = {"alignment": "weibull", "prior": "contextual"}
BESIDE = {
    "prior": {"alignment": "lognormal"},
    "per_head_prior": _CONTEXTUAL,
    "prior_over": _CONTEXTUAL,
    "warm_start_steps": {"alignment": "dirichlet"},
    ("BayesianAttention", "prior"): {},
    ("BayesianAttention", "warm_start_steps"): {"prior": None},
    ("BayesianAttention", "sigma"): {"distribution": "lognormal"},
    ("DirichletAttention", "prior"): {},
    ("DirichletAttention", "warm_start_steps"): {},
    ("GaussianContext", "prior"): {},
    ("PredictedContext", "informed"): {"informed": True},
}


def other_value(public_class, name, default):
    """Return a value other than the default. For a float that is not in the table, return half of the default."""
    value = OTHER.get((public_class.__name__, name), OTHER.get(name))
    is_number = isinstance(default, float) and not isinstance(value, numbers.Real)
    return default / 2.0 if is_number else value


def public_classes():
    """Return the registered public classes that define arguments."""
    modules = keras_vattn, keras_vattn.losses, keras_vattn.metrics
    classes = {x for module in modules for x in vars(module).values() if inspect.isclass(x)}
    registered = (x for x in classes if keras.saving.get_registered_name(x) != x.__name__)
    return sorted(filter(arguments_of, registered), key=lambda x: x.__name__)


def arguments_of(public_class):
    """Return the arguments of a class with their defaults, including arguments that the class passes to our base
    classes or to Keras's multi-head attention."""
    arguments = {}
    for each in public_class.__mro__:
        is_ours = each.__module__.startswith("keras_vattn") or each is keras.layers.MultiHeadAttention
        if is_ours and "__init__" in vars(each):
            parameters = list(inspect.signature(each.__init__).parameters.values())[1:]
            variadic = [x for x in parameters if x.kind is x.VAR_KEYWORD]
            arguments = {**{x.name: x.default for x in parameters if x not in variadic}, **arguments}
            if not variadic:
                break
    # Omit arguments that the class fixes, `axis` with its single value, and arguments that this Keras version lacks.
    decided = {*getattr(public_class, "fixed_arguments", ()), "draws_noise", "axis"}
    decided |= NEWER_ARGUMENTS.keys() - inspect.signature(keras.layers.MultiHeadAttention).parameters.keys()
    return {name: default for name, default in arguments.items() if name not in decided}
