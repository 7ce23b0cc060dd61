"""What was measured on."""

from __future__ import annotations

import os
import platform
from datetime import datetime
from typing import Any

import torch

from audiolm.benchmarks.disturbance import busy_seconds
from audiolm.machine import cpu_model, package_versions, usable_cores

SETTINGS = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD", "OMP_", "KMP_", "GOMP_", "MKL_", "ONEDNN_")
"""Beginnings of the variables that set the allocator, threads and matrix products."""
PACKAGES = ("lightning", "transformers", "encodec", "datasets", "webdataset", "litdata")


def describe_machine() -> dict[str, Any]:
    """CPU and its features, cores, threads, settings, versions and load, as plain data."""
    return {
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "cores_usable": usable_cores(),
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "cpu_features": sorted(
            name for name, there in torch.cpu.get_capabilities().items() if there is True
        ),
        "environment": {
            name: os.environ[name] for name in sorted(os.environ) if name.startswith(SETTINGS)
        },
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "packages": package_versions(PACKAGES),
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "other_load_is_known": busy_seconds() is not None,
    }
