"""Techniques of regression, one file each; `catalogue.techniques` finds them."""
