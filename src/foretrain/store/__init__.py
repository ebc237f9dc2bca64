"""WHAT HAPPENED, KEPT: runs of training commands, their step times, resource series and predictions."""
