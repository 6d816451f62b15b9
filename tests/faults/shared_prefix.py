from faults.fault import Fault

SHARED = "tests/draws/test_shared_prefix.py"

FAULTS = [
    Fault(
        "shared prefix: what depends on a draw is shared",
        "draws/shared_prefix.py",
        "if sources & drawing or _RANDOM",
        "if _RANDOM",
        (SHARED,),
        "whole_model",
    ),
    Fault(
        "shared prefix: a layer that draws in a loop is shared",
        "draws/shared_prefix.py",
        " or calls_drawing:",
        ":",
        (SHARED,),
        "unasked",
    ),
    Fault(
        "shared prefix: what is shared runs for each part of the draws",
        "draws/sampler.py",
        "functools.partial(rest, batch, prefix(batch))",
        "lambda *x, batch=batch, rest=rest, prefix=prefix: rest(batch, prefix(batch), *x)",
        (SHARED,),
        "whole_model",
    ),
    Fault(
        "shared prefix: rows that are no examples are shared",
        "draws/shared_prefix.py",
        "if once.shape.rank and _is_equal(repeated(once, 2), twice):",
        "if once.shape.rank:",
        (SHARED,),
        "transposed or number_of_an_example",
    ),
    Fault(
        "shared prefix: an assertion is lost",
        "draws/shared_prefix.py",
        "[drawn, effects]",
        "[drawn, []]",
        (SHARED,),
        "assertion",
    ),
    Fault(
        "predictive: strings are preprocessed twice",
        "draws/batches.py",
        "_arrays(_preprocessed(model, inputs))",
        "_arrays(_preprocessed(model, _preprocessed(model, inputs) and inputs))",
        ("tests/draws/test_inputs_and_outputs.py",),
        "preprocesses_strings_once",
    ),
]
