"""Readers of public measurements, one per data set: works, where they ran, and how long they took."""
