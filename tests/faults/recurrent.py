from faults.fault import Fault

FEEDING = ("tests/recurrent/test_feeding.py",)
OWN = ("tests/recurrent/test_decoder_of_ones_own.py",)

FAULTS = [
    Fault(
        "dropout fed where what p expects is asked for",
        "layers/attention.py",
        '        elif "dropout" in noise:\n',
        '        elif "nothing" in noise:\n',
        FEEDING,
        "neither and softmax",
    ),
    Fault(
        "the drawn context fed where what p expects is asked for",
        "recurrent/feeding.py",
        '        if "expected_weights" not in attended:\n            return attended["mean"]\n',
        '        if True:\n            return attended["context"]\n',
        (*FEEDING, "tests/recurrent/test_attention_decoder.py"),
        "query_and_feeding or p_expects",
    ),
    Fault(
        "the state of a score takes up what was drawn",
        "recurrent/feeding.py",
        'attended.get("expected_weights", attended["weights"])',
        'attended["weights"]',
        FEEDING,
        "state_of_a_score",
    ),
    Fault(
        "a masked step moves the state",
        "recurrent/recurrent_decoder.py",
        'lambda new, old: _where(x["mask"], new, old), new_state, state',
        "lambda new, old: new, new_state, state",
        ("tests/recurrent/test_attention_decoder.py", *OWN),
        "hold_the_state",
    ),
    Fault(
        "a part reads the state that an earlier one has changed",
        "recurrent/recurrent_decoder.py",
        "        gives, changed = part.step(given, state, memory, noise, training)\n",
        "        gives, changed = part.step(given, {**state, **new_state}, memory, noise, training)\n",
        OWN,
        "two_attentions",
    ),
    Fault(
        "the noise of a latent left out of the loop",
        "recurrent/parts.py",
        "self.latent.sample(parameters, noise.get(self.name, {}), training)",
        "self.latent.sample(parameters, {}, training)",
        OWN,
        "those_of_numpy or step_equals",
    ),
    Fault(
        "a latent without a prior draws from the wrong spread",
        "recurrent/parts.py",
        '            parameters = {"mean": zeros, "log_scale": zeros}\n',
        '            parameters = {"mean": zeros, "log_scale": zeros - 1.0}\n',
        OWN,
        "standard_normal",
    ),
    Fault(
        "the KL of a latent in masked steps",
        "recurrent/parts.py",
        'self.latent.account(given[self.name + "_posterior"], mask, training',
        'self.latent.account(given[self.name + "_posterior"], None, training',
        OWN,
        "those_of_numpy or masked_steps",
    ),
    Fault(
        "the prior of a latent left out of its KL",
        "recurrent/parts.py",
        'mask, training, given.get(self.name + "_prior"))',
        "mask, training)",
        OWN,
        "those_of_numpy",
    ),
    Fault(
        "a context beside the gates that it enters",
        "recurrent/cells.py",
        "        before, entered, after = projected[:, :start], projected[:, start:stop], projected[:, stop:]\n",
        "        start, stop = 0, stop - start\n"
        "        before, entered, after = projected[:, :start], projected[:, start:stop], projected[:, stop:]\n",
        ("tests/recurrent/test_cells.py",),
        "context_enters or candidate",
    ),
    Fault(
        "the states of a symbolic call are one tensor",
        "recurrent/attention_decoder.py",
        "[keras.KerasTensor(shape, dtype=self.compute_dtype) for _ in range(cells.num_states)]",
        "[keras.KerasTensor(shape, dtype=self.compute_dtype)] * cells.num_states",
        ("tests/recurrent/test_cells.py",),
        "functional_model",
    ),
]
