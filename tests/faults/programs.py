from faults.fault import Fault

CHECKPOINT = "applications/common/checkpoint.py"
TRAINING = "applications/common/training.py"
OPTIMIZERS = "applications/common/optimizers.py"
COMMON = "tests/applications/common/"

FAULTS = [
    Fault(
        "programs: what a metric has added up is restored for each part of the model that holds it",
        CHECKPOINT,
        "    return list({id(variable): variable for variable in model.metrics_variables}.values())\n",
        "    return model.metrics_variables\n",
        (COMMON + "test_callbacks.py",),
        "two_parts",
    ),
    Fault(
        "programs: a resumed epoch begins with its first batch",
        TRAINING,
        ".skip(skipped)",
        "",
        (COMMON + "test_resuming.py",),
        "stopped_twice",
    ),
    Fault(
        "programs: adamw without a decay",
        OPTIMIZERS,
        "    own = {} if options.weight_decay is None else {",
        "    own = {",
        (COMMON + "test_fit_options.py",),
        "an_optimizer",
    ),
    Fault(
        "programs: a schedule of updates and not of batches",
        OPTIMIZERS,
        "    rate = options.learning_rate if rate is None else rate\n",
        "    rate = options.learning_rate if rate is None else rate\n"
        "    num_batches, num_steps = num_batches / options.accumulate, num_steps // options.accumulate\n",
        (COMMON + "test_fit_options.py",),
        "exponential or added_up",
    ),
    Fault(
        "programs: a run that stopped early goes on",
        TRAINING,
        "checkpoint.step < total and not has_stopped():",
        "checkpoint.step < total:",
        (COMMON + "test_resuming.py",),
        "stopped_early",
    ),
    Fault(
        "programs: a run is deleted before the data of the new one have been read",
        TRAINING,
        '    print(f"reading data for {options.model}", flush=True)\n',
        "    if options.run.overwrite:\n        set_aside(options.run.out)\n",
        (COMMON + "test_training.py",),
        "bad_data and spotlight",
    ),
    Fault(
        "programs: a run that was killed before its first checkpoint starts from other weights",
        TRAINING,
        "    if folder is None or not (folder.path / CHECKPOINT).exists():\n",
        "    if folder is None:\n",
        (COMMON + "test_fit_options.py",),
        "starts_from_another and spotlight",
    ),
    Fault(
        "programs: validation is decoded after every epoch, however often it is asked for",
        "applications/text/options.py",
        "        return bool(self.decode_every) and (epoch + 1) % self.decode_every == 0\n",
        "        return True\n",
        ("tests/applications/nmt/test_evaluation.py",),
        "as_often",
    ),
    Fault(
        "programs: the figures of other data are overwritten",
        "applications/common/commands.py",
        "    if not same:\n",
        "    if False:\n",
        (COMMON + "test_reading_commands.py",),
        "on_other_files and spotlight",
    ),
    Fault(
        "programs: a damaged record of a comparison is a traceback",
        "applications/common/compare.py",
        "        reported = _json(path).get(",
        "        reported = json.loads(_text(path)).get(",
        (COMMON + "test_comparison.py",),
        "intervals",
    ),
    Fault(
        "programs: a sentence in another case is in training and validation",
        "applications/text/readers.py",
        'return " ".join(sentence.lower().split())',
        'return " ".join(sentence.split())',
        ("tests/applications/nmt/test_data.py", "tests/applications/vrae/test_data.py"),
        "cut_from_train or equal_sentences",
    ),
    Fault(
        "programs: a model and its start have all steps each",
        "applications/common/plan.py",
        "of_start = steps and steps * first // epochs",
        "of_start = steps",
        (COMMON + "test_comparison.py",),
        "limit_of_steps",
    ),
    Fault(
        "programs: TensorFlow is imported before the options are read",
        "applications/common/command_line.py",
        "import tyro\n",
        "import tensorflow\nimport tyro\n",
        (COMMON + "test_before_tensorflow.py",),
        "mistakes",
    ),
    Fault(
        "programs: two models inside of the translation model that share a layer",
        "applications/nmt/model.py",
        '        posterior = keras.Model({"source": source, "target": target}, posterior_logits, name="posterior")\n',
        '        posterior = keras.Model({"source": source, "target": target}, posterior_logits, name="posterior")\n'
        '        memory, posterior_logits = encoder(source), posterior({"source": source, "target": target})\n',
        (COMMON + "test_training.py",),
        "keras_file and nmt",
    ),
    Fault(
        "programs: the forget gates of the translation model's encoders are not drawn",
        "applications/nmt/model.py",
        "            unit_forget_bias=not options.network.initial_range,\n",
        "",
        ("tests/applications/nmt/test_model.py",),
        "initial_range",
    ),
    Fault(
        "programs: a share may be nothing",
        "applications/common/options.py",
        "lambda x: 0 < x <= 1)",
        "lambda x: 0 <= x <= 1)",
        (COMMON + "test_options.py",),
        "cannot_have and spotlight and decay",
    ),
]
