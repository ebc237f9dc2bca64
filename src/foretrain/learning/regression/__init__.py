"""Published regressions of whole timings: stepwise selection, end-to-end models."""
