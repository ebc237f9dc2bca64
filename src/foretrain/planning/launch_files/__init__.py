"""Launch files of a plan: one module per launch target."""

from foretrain.planning.launch_files._base import launch_file, launch_plan, launch_targets

__all__ = ["launch_file", "launch_plan", "launch_targets"]
