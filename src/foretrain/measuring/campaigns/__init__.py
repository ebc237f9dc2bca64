"""Campaigns: many short real trainings from one file, stored as they end, resumable at any moment.

campaign.py   what a campaign file says        trials.py    its trials, their keys and their order
running.py    the loop: skip, predict, run, store; and how long the rest will take
local.py      trials on this machine           on_ray.py    trials on a Ray cluster
"""
