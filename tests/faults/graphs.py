"""Faults of the classification of nodes."""

from faults.fault import Fault

PLANETOID = ("tests/applications/graphs/test_convert_planetoid.py",)
DATA = ("tests/applications/graphs/test_data.py",)
MODEL = ("tests/applications/graphs/test_model.py",)
EVALUATION = ("tests/applications/graphs/test_evaluation.py",)

FAULTS = [
    Fault(
        "graphs: any class is unpickled",
        "tools/convert_planetoid.py",
        "not in _ALLOWED:\n",
        "not in _ALLOWED:\n            return super().find_class(module, name)\n        if name == module:\n",
        PLANETOID,
        "wrong_with_pickles",
    ),
    Fault(
        "graphs: test nodes stand in the order of their numbers",
        "tools/convert_planetoid.py",
        'features[order] = parts["tx"]',
        'features[np.sort(order)] = parts["tx"]',
        PLANETOID,
        "test_planetoid",
    ),
    Fault(
        "graphs: an isolated node is of class 0",
        "tools/convert_planetoid.py",
        "np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)",
        "one_hot.argmax(axis=1)",
        PLANETOID,
        "planetoid",
    ),
    Fault(
        "graphs: edges of an undirected graph have one direction",
        "applications/graphs/data.py",
        "if not options.directed:",
        "if options.directed:",
        DATA,
        "archive or tables",
    ),
    Fault(
        "graphs: splits may overlap",
        "applications/graphs/data.py",
        "if (counts > 1).any():",
        "if False:",
        DATA,
        "wrong_with",
    ),
    Fault(
        "graphs: a drawn neighbour is always the first one",
        "applications/graphs/sampling.py",
        "generator.random(len(targets)), np.repeat",
        "np.zeros(len(targets)), np.repeat",
        DATA,
        "drawn_neighbours",
    ),
    Fault(
        "graphs: targets of a drawn batch keep their old numbers",
        "applications/graphs/sampling.py",
        '"targets": numbered[: len(nodes)].astype(np.int32)',
        '"targets": nodes.astype(np.int32)',
        (*DATA, *MODEL),
        "drawn_batch or batch_of_drawn",
    ),
    Fault(
        "graphs: what a prior draws shifts the initial weights",
        "applications/graphs/model.py",
        "        keras.utils.set_random_seed(options.run.layer_seed(index))\n        layer.build(",
        "        layer.build(",
        MODEL,
        "same_initial_weights",
    ),
    Fault(
        "graphs: the L2 of kernels is that of all",
        "applications/graphs/model.py",
        'network.l2_of == "all" or "bias" not in weight.name',
        "True",
        MODEL,
        "sum_of_squares",
    ),
    Fault(
        "graphs: the published mean is of each layer",
        "applications/graphs/model.py",
        "kl_weight *= num_heads / (network.num_heads + network.output_heads)",
        "kl_weight *= 1.0",
        MODEL,
        "published_values",
    ),
    Fault(
        "graphs: the published criterion keeps the best accuracy",
        "applications/graphs/train.py",
        "self.best -= all(at_best)",
        "self.best -= at_best[0]",
        EVALUATION,
        "criteria",
    ),
    Fault(
        "graphs: patience waits for both",
        "applications/graphs/train.py",
        "self.better -= any(at_best)",
        "self.better -= all(at_best)",
        EVALUATION,
        "criteria",
    ),
    Fault(
        "graphs: uncertainty of dropout is that of the attention",
        "applications/common/predictor.py",
        '"posterior": kind != "dropout"}',
        '"posterior": True}',
        EVALUATION,
        "random_in_draws",
    ),
    Fault(
        "graphs: columns of features are taken as they stand",
        "applications/graphs/data.py",
        "    if columns and graph.columns not in (None, columns):\n",
        "    if False:\n",
        DATA,
        "another_order",
    ),
    Fault(
        "graphs: a prediction reads the file on its own scale",
        "applications/graphs/serve.py",
        "graph = data.encode(run.options, run.codec, part).graph",
        "graph = part.graph",
        EVALUATION,
        "were_added",
    ),
    Fault(
        "graphs: p values are not corrected",
        "applications/graphs/report.py",
        "holm(list(p_values.values()))",
        "list(p_values.values())",
        EVALUATION,
        "table_of_the_paper",
    ),
]
