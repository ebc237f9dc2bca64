"""What jobs would do if node time had a price: the machinery of the policies `price`, `milp` and `auto`.

- `options`: what each job can run on, as arrays.
- `plans`: ways to run each job to its end, with their cost and the node time they use.
- `prices`: a price of node time, by group of nodes and period, at which the cheapest plans fit.
- `selection`: which jobs run now, given what each first step would cost.
- `packing`: which jobs share a node, and the type each node takes.
- `view`: all of it for one state.
"""
