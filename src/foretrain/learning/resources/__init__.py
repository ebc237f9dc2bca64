"""Resource consumption learned from runs: the Inspector, a graph network on the grouped graph of a step."""
