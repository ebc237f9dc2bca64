"""WHAT WE KNOW: devices, links, offers, energy, and the source of every figure.

Facts are data files under `data/`; this package only reads, checks and looks them up. Each figure has a
kind (`spec`, `measured`, `fitted`, `assumed`) and a source that resolves in `data/sources.toml`.
"""
