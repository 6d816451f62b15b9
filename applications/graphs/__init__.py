"""Classification of the nodes of a graph, with graph attention whose weights can be drawn."""
