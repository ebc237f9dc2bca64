"""two_phases"""
