"""division"""
