"""Launch files of a plan: a class per launch target, found by its registry."""

from foretrain.planning.launch_files._base import launch_file, launch_plan, launch_targets

__all__ = ["launch_file", "launch_plan", "launch_targets"]
