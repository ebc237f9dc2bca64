"""heterogeneous"""
