"""The buyer's guide: networks x hardware x global batch sizes."""
