"""Fits of the shipped calibrations to public measurements, and the readers of those data sets.

Not part of the wheel: `make calibrate` runs it in a source checkout, `validation` judges what it fitted.
"""
