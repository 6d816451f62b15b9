from faults.fault import Fault

FEEDING = ("tests/recurrent/test_feeding.py",)

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
        "the drawn context fed where its mean is asked for",
        "recurrent/feeding.py",
        '        if "expected_weights" not in attended:\n            return attended["mean"]\n',
        '        if True:\n            return attended["context"]\n',
        ("tests/recurrent/test_attention_decoder.py",),
        "query_and_feeding",
    ),
    Fault(
        "a masked step moves the state",
        "recurrent/recurrent_decoder.py",
        'lambda new, old: _where(x["mask"], new, old)',
        "lambda new, old: new",
        ("tests/recurrent/test_attention_decoder.py",),
        "hold_the_state",
    ),
]
