"""Division of a graph over devices along named dimensions."""
