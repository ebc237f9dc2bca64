"""Fits on whole measured steps: hosts, mixed precision, harnesses around the priced operators."""
