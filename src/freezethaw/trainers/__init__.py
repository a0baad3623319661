"""Trainings: a function, a class, a command, or the name of a function or class; and adapters for libraries."""

from freezethaw.trainers.command import CommandTrainer, command, limited
from freezethaw.trainers.importing import NamedTrainer, named
from freezethaw.trainers.protocol import ClassTrainer, Train, TrainingRun, function_of

__all__ = [
    "ClassTrainer",
    "CommandTrainer",
    "NamedTrainer",
    "Train",
    "TrainingRun",
    "command",
    "function_of",
    "limited",
    "named",
]
