"""Communication between devices: the time of a collective over the links of a cluster.

`network` holds the links and their achieved rates, `algorithms` the published collective algorithms, and
`costs` chooses the fastest of them.
"""
