from faults.fault import Fault

FAULTS = [
    Fault(
        "the drawn context fed where its mean is asked for",
        "recurrent/attention_decoder.py",
        '        if self.feeding == "sampled":\n            return attended["context"]\n',
        '        if True:\n            return attended["context"]\n',
        ("tests/recurrent/test_attention_decoder.py",),
        "query_and_feeding",
    ),
    Fault(
        "a masked step moves the state",
        "recurrent/attention_decoder.py",
        'keep = lambda new, old: ops.where(x["mask"][:, None], new, old)  # noqa: E731',
        "keep = lambda new, old: new",
        ("tests/recurrent/test_attention_decoder.py",),
        "hold_the_state",
    ),
]
