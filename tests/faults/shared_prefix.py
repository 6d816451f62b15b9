from faults.fault import Fault

SHARED = "tests/draws/test_shared_prefix.py"

FAULTS = [
    Fault(
        "shared prefix: a shared prefix drawn once too often",
        "draws/shared_prefix.py",
        "return any(x in self.noise.dropping or (sees_marks(x) and x.draws is not None) for x in layers)",
        "return False",
        (SHARED,),
        "whole_model",
    ),
    Fault(
        "shared prefix: a layer that draws unasked is shared",
        "draws/shared_prefix.py",
        "return None if is_random or not",
        "return None if not",
        (SHARED,),
        "unasked",
    ),
    Fault(
        "shared prefix: a mask is lost between what is shared and the rest",
        "draws/shared_prefix.py",
        "            if keras_private.mask_of(values[key]) is not None:\n",
        "            if False:\n",
        (SHARED,),
        "masked",
    ),
    Fault(
        "shared prefix: what is shared runs for each part of the draws",
        "draws/posterior_predictive.py",
        "functools.partial(halves[1], batch, shared)",
        "lambda *x, batch=batch: halves[1](batch, halves[0](batch), *x)",
        (SHARED,),
        "whole_model",
    ),
    Fault(
        "shared prefix: models inside the model are not split",
        "draws/shared_prefix.py",
        "if draws and inner is not None:",
        "if False:",
        (SHARED,),
        "nested",
    ),
    Fault(
        "shared prefix: an operation that moves the examples is shared",
        "draws/shared_prefix.py",
        "return all(x.shape[:1] == (_EXAMPLES,) for x in tree.flatten(outputs))",
        "return True",
        (SHARED,),
        "transposed",
    ),
    Fault(
        "shared prefix: a layer that moves the examples is shared",
        "draws/posterior_predictive.py",
        "if repeats and {len(x)",
        "if False and {len(x)",
        (SHARED,),
        "both-in-one or moves",
    ),
    Fault(
        "shared prefix: a model with a call of its own is run as its graph",
        "support/keras_private.py",
        "isinstance(layer, Functional) and type(layer).call is Functional.call else",
        "isinstance(layer, Functional) else",
        (SHARED,),
        "own-call",
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
