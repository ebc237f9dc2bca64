"""Regressions of whole timings, as the literature has them: stepwise selection, end-to-end models."""
