"""Whether a GPU could run a traced function whole: asked of TensorFlow's registry of kernels, which needs no GPU.

    python tests/gpu_kernels.py              # the training step of every layer and objective
    python tests/gpu_kernels.py decoder lstm # those whose name has all of these words

prints every operation with its types, its kernel, and whether it leaves the GPU. Two kinds do: one without a GPU kernel
for its types, and one whose GPU kernel keeps a large tensor in host memory, as most of TensorFlow's keep int32.
"""

import collections
import dataclasses
import functools
import sys

import tensorflow as tf
from tensorflow.python.framework import kernels

# Tensors of these types that a function, a condition or a loop takes and gives are in host memory.
OF_THE_HOST = (tf.int32, tf.string, tf.resource)
# What a function begins with.
LEFT_OUT = ("Const", "Placeholder", "NoOp")


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation of a graph.

    Attributes:
        type: Its name in TensorFlow.
        dtypes: Those of its tensors.
        kernel: Whose kernel a GPU runs: its own, that of all devices, a function's; "none" without one.
        leaves: Why it leaves the GPU, or "".
        name: Its name in the graph.
    """

    type: str
    dtypes: tuple
    kernel: str
    leaves: str
    name: str


def operations(function, size):
    """Yield every `Operation` of a concrete function and of all functions it calls; a tensor of `size` is large."""
    seen, waiting = set(), [function.graph]
    while waiting:
        graph = waiting.pop()
        for op in graph.get_operations():
            if op.type not in LEFT_OUT:
                yield _examined(op, size)
            for name in set(_functions(op)) - seen:
                seen.add(name)
                waiting.append(graph._get_function(name).graph)


def _functions(op):
    return [f.name for value in op.node_def.attr.values() for f in (value.func, *value.list.func) if f.name]


def _examined(op, size):
    tensors = [*op.inputs, *op.outputs]
    large = [_is_large(x, size) for x in tensors]
    dtypes = tuple(dict.fromkeys(x.dtype.base_dtype.name for x in tensors))
    kernel = _gpu_kernel(op)
    leaves = ""
    if _functions(op):
        device, on_host = "function", [x.dtype in OF_THE_HOST for x in tensors]
    elif kernel is None:
        device, on_host = "none", []
        leaves = "no kernel" if any(large) or any(x.dtype.is_floating for x in tensors) else ""
    else:
        device, names = kernel.device_type, [*_names(op.op_def.input_arg, op), *_names(op.op_def.output_arg, op)]
        on_host = [name in kernel.host_memory_arg for name in names]
    if any(host and is_large for host, is_large in zip(on_host, large)):
        leaves = "host memory"
    return Operation(op.type, dtypes, device, leaves, op.name)


def _is_large(tensor, size):
    """Whether it has so many entries, or an unknown number; the axes of a gradient's sum are few."""
    count = tensor.shape.num_elements()
    counts = tensor.shape.rank != 0 if count is None else count >= size
    return counts and tensor.dtype not in (tf.resource, tf.variant) and tensor.op.type != "BroadcastGradientArgs"


def _names(arguments, op):
    """Return the name of the argument of each tensor: an argument may be a list of tensors."""
    counts = [op.get_attr(x.number_attr) if x.number_attr else 1 for x in arguments]
    counts = [len(op.get_attr(x.type_list_attr)) if x.type_list_attr else n for x, n in zip(arguments, counts)]
    return [x.name for x, count in zip(arguments, counts) for _ in range(count)]


@functools.cache
def _registered(operation):
    # A kernel of all devices runs where a GPU has none of its own.
    found = kernels.get_registered_kernels_for_op(operation).kernel
    return [x for device in ("GPU", "DEFAULT") for x in found if x.device_type == device and not x.label]


def _gpu_kernel(op):
    """Return the kernel that a GPU has for the types of an operation, or `None`."""

    def takes(constraint):
        value = op.node_def.attr[constraint.name]
        return {value.type, *value.list.type} - {0} <= set(constraint.allowed_values.list.type)

    return next((x for x in _registered(op.type) if all(map(takes, x.constraint))), None)


def main(words):
    from training_steps import BATCH, RUNS, traced

    rows = collections.defaultdict(list)
    for name, policy in RUNS:
        for op in operations(traced(name, policy), BATCH) if all(word in name for word in words) else ():
            rows[op.type, ", ".join(op.dtypes), op.kernel, op.leaves].append((name, op.name))
    print("| operation | types | kernel | leaves the GPU | nodes | steps | one of them |")
    print("|---" * 7 + "|")
    for row, places in sorted(rows.items(), key=lambda item: (not item[0][-1], item[0])):
        steps = {name for name, _ in places}
        print(*("", *row, len(places), len(steps), f"{places[0][0]}: {places[0][1]}", ""), sep=" | ")


if __name__ == "__main__":
    main(sys.argv[1:])
