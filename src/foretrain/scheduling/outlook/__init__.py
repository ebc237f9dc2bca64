"""What jobs would do if node time had a price: the machinery of the policies `price`, `milp` and `auto`.

- `options`: what each job can run on, as arrays.
- `arrivals`: jobs expected to be submitted, from those seen so far.
- `plans`: ways to run each job to its end, with their cost and the node time they use.
- `prices`: a price of node time, by group of nodes and period, at which the cheapest plans fit.
- `packing`: which jobs share a node, and the type each node takes.
"""
