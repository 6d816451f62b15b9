"""Classification of the nodes of a graph, with deterministic or random graph attention."""
