"""How many operations a training step of every attention layer has: nodes of its graph, and those that run.

The nodes that run are the nodes of the graph after TensorFlow's rewriting on a CPU, without constants, reads of
variables and what moves no data, such as a reshape. Prints a Markdown table, Keras's layers first, and a JSON:
`PYTHONPATH=tests:. python -m benchmarks.launches`, with names of rows of the battery for these alone.
"""

import collections
import json
import sys

import keras
import tensorflow as tf
from battery_attention import ATTENTION_CASES
from battery_decoder import DECODER_CASES
from battery_graph import GRAPH_CASES
from battery_latent import LATENT_CASES
from battery_multi_head import MULTI_HEAD_CASES
from battery_parts import PART_CASES
from tensorflow.python.eager import context

# The others of the battery are configurations of these.
STEPS = ("attention", "-attention", "weibull", "lognormal", "dirichlet", "gumbel", "multi-head", "graph", "categorical")
LOOPS = "decoder-lstm-additive", "decoder-gru", "decoder-lstm-weibull", "stochastic-decoder"
NOT_RUN = {"Const", "NoOp", "_Arg", "_Retval", "ReadVariableOp", "Identity", "IdentityN", "Placeholder"} | {
    *("Bitcast", "ExpandDims", "Reshape", "Squeeze")
}
CONTROL = {"Enter", "Exit", "Merge", "Switch", "NextIteration", "LoopCond"}


def counts(call, variables):
    """Return four numbers of nodes: of the graph of a training step, of what it runs, of one step of its loops, and
    of the gradient of that one step.

    Args:
        call: Function of nothing that returns outputs and losses, a structure of tensors.
        variables: Function of nothing that returns the variables to differentiate by.
    """

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_mean(tf.square(tf.cast(x, tf.float32))) for x in tf.nest.flatten(call())])
        return [loss, *(x for x in tape.gradient(loss, variables()) if x is not None)]

    nodes = len(step.get_concrete_function().graph.get_operations())
    context.context().enable_graph_collection()
    step()
    graphs = context.context().export_run_metadata().function_graphs
    context.context().disable_graph_collection()
    run = max((x.post_optimization_graph for x in graphs), key=lambda graph: len(graph.node)).node
    run = [x for x in run if x.op not in NOT_RUN and not x.op.startswith("_Host")]
    in_loops = collections.Counter(
        "backward" if "gradient" in x.name.partition("while")[0] else "forward"
        for x in run
        if "while/body" in x.name and x.op not in CONTROL
    )
    return {"nodes": nodes, "run": len(run), **in_loops}


def of_case(case):
    layer, arrays = case.built(), {name: tf.Variable(x) for name, x in case.arrays().items()}
    call = lambda: [case.floats(layer(**arrays, training=True)), layer.losses]  # noqa: E731
    return counts(call, lambda: layer.trainable_variables)


def of_keras(layer, rank=2):
    x = tf.ones((4, 3, 4))
    call = (lambda: layer(x, x, training=True)) if rank == 2 else (lambda: layer([x, x], training=True))
    call()
    return counts(call, lambda: [*layer.trainable_variables, x])


def main(names):
    rows = {}
    if not names:
        rows["keras.layers.Attention"] = of_keras(keras.layers.Attention(use_scale=True), rank=1)
        rows["keras.layers.AdditiveAttention"] = of_keras(keras.layers.AdditiveAttention(), rank=1)
        rows["keras.layers.MultiHeadAttention"] = of_keras(keras.layers.MultiHeadAttention(2, 4))
    cases = [*ATTENTION_CASES, *MULTI_HEAD_CASES, *GRAPH_CASES, *PART_CASES, *LATENT_CASES, *DECODER_CASES]
    for case in cases:
        is_row = "softmax" in case.name or (any(x in case.name for x in STEPS) and "decoder" not in case.name)
        is_row = is_row or case.name.startswith(LOOPS)
        if case.name in names if names else is_row:
            rows[case.name] = of_case(case)
    print("| layer | nodes | run | a time step, forward | backward |")
    print("|---|---|---|---|---|")
    for name, row in rows.items():
        print("| " + " | ".join([name, *(str(row.get(x, "")) for x in ("nodes", "run", "forward", "backward"))]) + " |")
    print(json.dumps(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
