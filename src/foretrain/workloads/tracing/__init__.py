"""Recording a training step on the meta device: no GPU, no data, no weights."""
