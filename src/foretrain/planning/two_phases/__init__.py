"""Two-phase plans: the exact optimum of switching once from one offer to another."""
