"""Operator models: the time of one operator on one device."""
