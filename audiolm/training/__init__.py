"""Training in Lightning: modules, batches, callbacks, logging. Only this package imports it."""

from audiolm.training.checkpoint_io import AtomicCheckpointIO
from audiolm.training.ema import EMA
from audiolm.training.interrupt import GracefulInterrupt
from audiolm.training.language_model import LanguageModelTraining
from audiolm.training.last_checkpoint import LastCheckpoint
from audiolm.training.metrics_csv import MetricsCSV
from audiolm.training.plan import Yardsticks, describe_plan, measure_yardsticks
from audiolm.training.precision import best_precision
from audiolm.training.progress import StepProgressBar
from audiolm.training.samples import SampleCallback
from audiolm.training.token_data import TokenData
from audiolm.training.wandb_logger import make_wandb_logger

__all__ = [
    "EMA",
    "AtomicCheckpointIO",
    "GracefulInterrupt",
    "LanguageModelTraining",
    "LastCheckpoint",
    "MetricsCSV",
    "SampleCallback",
    "StepProgressBar",
    "TokenData",
    "Yardsticks",
    "best_precision",
    "describe_plan",
    "make_wandb_logger",
    "measure_yardsticks",
]
