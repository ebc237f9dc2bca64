"""Data-parallel steps on clusters of unequal nodes: which nodes take part, with which batches."""
