"""The training protocol: what a user's training function receives."""

from freezethaw.trainers.protocol import TrainingRun

__all__ = ["TrainingRun"]
