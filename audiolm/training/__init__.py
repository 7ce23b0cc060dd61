"""Training in Lightning: modules, batches, callbacks, logging.

Only this package imports it, and the benchmarks that measure what it costs.
"""

from audiolm.training.callbacks.checkpoints import (
    AtomicCheckpointIO,
    BestCheckpoint,
    LastCheckpoint,
)
from audiolm.training.callbacks.ema import EMA
from audiolm.training.callbacks.interrupt import GracefulInterrupt
from audiolm.training.callbacks.progress import StepProgressBar
from audiolm.training.lm.data import TokenData
from audiolm.training.lm.module import LanguageModelTraining
from audiolm.training.lm.samples import SampleCallback
from audiolm.training.lm.summary import describe_plan, measure_baselines
from audiolm.training.loggers.metrics_csv import MetricsCSV
from audiolm.training.loggers.wandb import make_wandb_logger
from audiolm.training.optimisation import make_optimizer
from audiolm.training.precision import best_precision

__all__ = [
    "EMA",
    "AtomicCheckpointIO",
    "BestCheckpoint",
    "GracefulInterrupt",
    "LanguageModelTraining",
    "LastCheckpoint",
    "MetricsCSV",
    "SampleCallback",
    "StepProgressBar",
    "TokenData",
    "best_precision",
    "describe_plan",
    "make_optimizer",
    "make_wandb_logger",
    "measure_baselines",
]
