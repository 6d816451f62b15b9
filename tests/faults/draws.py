from faults.fault import Fault

PREDICTIVE = "tests/draws"

FAULTS = [
    Fault(
        "predictive: batches share their noise",
        "draws/posterior_predictive.py",
        "        seed = random.fold_in(seed, index)\n",
        "",
        (PREDICTIVE,),
        "share_noise",
    ),
    Fault(
        "predictive: the model's variables change",
        "draws/model_noise.py",
        "            stack.enter_context(keras.StatelessScope(collect_losses=True, initialize_variables=False))\n",
        "",
        (PREDICTIVE,),
        "state_changes or training_goes_on",
    ),
    Fault(
        "predictive: training mode instead of dropout",
        "draws/posterior_predictive.py",
        "model(inputs, training=False)",
        "model(inputs, training=True)",
        (PREDICTIVE,),
        "temperature or averages",
    ),
    Fault(
        "predictive: an attention with dropout runs as in training",
        "draws/model_noise.py",
        'return {**noise, "dropout": in_training["dropout"]} if "dropout" in in_training else noise',
        "return in_training",
        (PREDICTIVE,),
        "attention_with_dropout",
    ),
    Fault(
        "predictive: normalisation inside a dropping layer trains",
        "draws/model_noise.py",
        "with_training(layer.call, False)",
        "layer.call",
        (PREDICTIVE,),
        "normalis or normaliz",
    ),
    Fault(
        "predictive: rows without a limit",
        "draws/posterior_predictive.py",
        "min(num_samples, max_rows // max(1, *rows))",
        "num_samples",
        (PREDICTIVE,),
        "max_rows or however_many",
    ),
    Fault(
        "predictive: one dropout mask for all draws of a stack",
        "draws/model_noise.py",
        'replaced(generator, "next", lambda ordered=True: tf.bitcast(seed, tf.uint32))',
        'replaced(generator, "next", lambda ordered=True: tf.bitcast(seeds[0], tf.uint32))',
        (PREDICTIVE,),
        "however_many",
    ),
]
