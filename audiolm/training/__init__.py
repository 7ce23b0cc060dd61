"""Training in Lightning: modules, batches, callbacks, logging.

Only this package imports it, and the benchmark that measures what it costs.
"""

from audiolm.training.checkpoint_io import AtomicCheckpointIO
from audiolm.training.checkpoints import BestCheckpoint, LastCheckpoint
from audiolm.training.ema import EMA
from audiolm.training.interrupt import GracefulInterrupt
from audiolm.training.language_model import LanguageModelTraining
from audiolm.training.metrics_csv import MetricsCSV
from audiolm.training.optimisation import make_optimizer
from audiolm.training.plan import describe_plan, measure_yardsticks
from audiolm.training.precision import best_precision
from audiolm.training.progress import StepProgressBar
from audiolm.training.samples import SampleCallback
from audiolm.training.token_data import TokenData, check_data_settings
from audiolm.training.wandb_logger import make_wandb_logger

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
    "check_data_settings",
    "describe_plan",
    "make_optimizer",
    "make_wandb_logger",
    "measure_yardsticks",
]
