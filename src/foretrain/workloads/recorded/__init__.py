"""Graphs that ship with the package, so that known models are predicted without torch.

A recording is a graph whose sizes are expressions of named sizes and whose equal blocks are stored once
(`template`); the optimizer's part is added for any optimizer (`updates`). `library` finds the recording of a
workload; `recording` makes them, and is the only module here that needs torch.
"""
