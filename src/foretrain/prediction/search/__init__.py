"""Search for the fastest layout and, for data parallelism, closed-form steps on many groups."""
