"""WHAT TO RENT OR BUY: comparing ways to get the machines a job needs."""
