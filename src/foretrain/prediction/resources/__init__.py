"""Bursts and idle gaps of predicted steps, and how two jobs share a device."""
