"""A trained model in the browser, on this machine: python scripts/app.py [ckpt_path=FILE]

Needs pip install -e '.[app]'.
"""

from __future__ import annotations

from audiolm.cli.loading import start_loading

if __name__ == "__main__":
    start_loading()  # the other imports take seconds

from omegaconf import DictConfig

from audiolm.cli.allocator import share_heap
from audiolm.cli.app import start
from audiolm.cli.app_page import check_gradio, make_app, make_workshop
from audiolm.hub import hub_folder, is_hub_name


def main(cfg: DictConfig) -> None:
    if is_hub_name(cfg.ckpt_path):
        hub_folder(cfg.ckpt_path)  # is in the cache, before the page keeps Gradio off the network
    check_gradio()
    share_heap()
    workshop = make_workshop(cfg)
    print(f"checkpoint {workshop.checkpoint}, step {workshop.synthesizer.trained.step:,}")
    print("starting  the page, which takes some seconds", flush=True)
    app = make_app(cfg, workshop)
    print(f"app       {app.serve(cfg.host, cfg.port)}, until Ctrl-C", flush=True)
    app.wait()


if __name__ == "__main__":
    start("app", main)
