"""Trainings: a function, a class, a command, or the name of a function or class; and adapters for libraries."""

from freezethaw.trainers.class_trainer import ClassTrainer, function_of
from freezethaw.trainers.command import CommandTrainer, command, limited
from freezethaw.trainers.importing import NamedTrainer, named
from freezethaw.trainers.protocol import Train, TrainingRun

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
