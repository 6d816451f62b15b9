"""Classification of the nodes of a graph, with deterministic or stochastic graph attention."""
