from faults.fault import Fault

DECISIONS = "tests/metrics/test_decisions.py"
EXPORT = "tests/draws/test_export_draws.py"
SERVED = "tests/draws/test_served_draws.py"

FAULTS = [
    Fault(
        "a temperature applied the wrong way",
        "metrics/temperature.py",
        "logits * np.exp(-log_temperature)",
        "logits * np.exp(log_temperature)",
        (DECISIONS,),
        "temperature",
    ),
    Fault(
        "a temperature of each draw alone",
        "metrics/temperature.py",
        "np.logaddexp.reduce(log_likelihoods, axis=0)",
        "np.mean(log_likelihoods, axis=0)",
        (DECISIONS,),
        "temperature",
    ),
    Fault(
        "a conformal quantile without the + 1",
        "metrics/conformal.py",
        "(len(labels) + 1) * (1.0 - alpha)",
        "len(labels) * (1.0 - alpha)",
        (DECISIONS,),
        "coverage or by_hand",
    ),
    Fault(
        "tied scores are counted as found in turn",
        "metrics/out_of_distribution.py",
        "recall - 0.5 * np.diff(recall, prepend=0.0)",
        "recall",
        (DECISIONS,),
        "scikit_learn",
    ),
    Fault(
        "export: what a function before the model reads is lost",
        "draws/export_draws.py",
        "    if inspect.isfunction(preprocessor):",
        "    if False:",
        (EXPORT,),
        "a_function_before",
    ),
    Fault(
        "export: logits pass for probabilities",
        "draws/export_draws.py",
        "        _refuse_others(function, specs)\n",
        "        pass\n",
        (EXPORT,),
        "errors",
    ),
    Fault(
        "export: a seed that is ignored",
        "draws/export_draws.py",
        "inputs, num_samples, seed, max_rows)",
        "inputs, num_samples, 0, max_rows)",
        (EXPORT,),
        "seed_decides or statistics",
    ),
    Fault(
        "export: a preprocessor applied twice",
        "draws/export_draws.py",
        "utils.unpack_x_y_sample_weight(preprocessor(inputs))[0]",
        "preprocessor(utils.unpack_x_y_sample_weight(preprocessor(inputs))[0])",
        (SERVED,),
        "applied_once",
    ),
    Fault(
        "export: the calls of a request share their noise",
        "draws/model_noise.py",
        "self.drawn_from(random.fold_in(seed, number))",
        "self.drawn_from(seed)",
        (EXPORT,),
        "statistics",
    ),
    Fault(
        "export: the draws of a rounded last call are returned as well",
        "draws/model_noise.py",
        "tf.shape(calls)[2:]], axis=0))[:num_samples]",
        "tf.shape(calls)[2:]], axis=0))",
        (SERVED, EXPORT),
        "statistics",
    ),
    Fault(
        "finetuning: numbered arguments of the endpoints",
        "applications/finetuning/serve.py",
        "predict = with_names(lambda *texts: self._answers(self._outputs(self._inputs(texts))), *names)",
        "predict = lambda *texts: self._answers(self._outputs(self._inputs(texts)))  # noqa: E731",
        ("tests/applications/finetuning/test_model.py",),
        "what_is_exported and score",
        slow_because="the functions of an export are traced",
    ),
]
