"""Pipeline parallelism: schedules, cuts between layers, and the programs of each stage."""

from foretrain.prediction.strategies.pipeline.pipeline import PipelineParallel

__all__ = ["PipelineParallel"]
