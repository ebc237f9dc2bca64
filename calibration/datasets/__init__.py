"""Readers of public measurements, one per data set; `docs/datasets.md` describes the files."""
