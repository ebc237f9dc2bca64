"""Composition of a step: streams, exchanges, pipelines, parameter servers and the input pipeline."""
