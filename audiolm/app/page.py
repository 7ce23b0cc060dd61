"""The page in the browser, by Gradio: what can be pressed, and what happens then.

Letters: C audio channels, N audio samples.
"""

from __future__ import annotations

import logging
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gradio as gr
import numpy as np
import torch
from markupsafe import escape
from torch import Tensor

from audiolm.app.codebooks import MOST_SECONDS, bits_per_second, by_codebooks
from audiolm.app.controls import Control, condition_controls, sampling_controls
from audiolm.app.results import MOST_RESULTS, Card, card_of_sound, cards_html, style
from audiolm.app.workshop import StoppedByUser, Workshop
from audiolm.audio import AudioError
from audiolm.audio.write import pcm_16
from audiolm.files import one_line
from audiolm.limits import MAX_SEED

log = logging.getLogger(__name__)

FIRST_PORT = 7860
BLOCK_SECONDS = 0.5
"""Of sound that go to the browser at once; each costs a run of ffmpeg."""
HOURS_KEPT = 24
"""That recordings which visitors gave stay on the disk."""

Explain = Callable[[BaseException], str | None]
"""One line for an error that the user can mend; None for one that is ours."""


class App:
    """The page of a workshop, and the server that shows it.

    Args:
        workshop: what is worked with.
        first: values of num_samples, duration and seed at first.
        explain: see `Explain`.
    """

    def __init__(self, workshop: Workshop, first: Mapping[str, Any], explain: Explain) -> None:
        self.workshop = workshop
        self.first = first
        self.explain = explain
        self.can_stream = shutil.which("ffmpeg") is not None
        self.inputs: dict[str, Any] = {}
        """The components of the request, by setting."""
        self.conditions: dict[str, Any] = {}
        """Those of the conditions, by column."""
        self.blocks = self._build()

    def serve(self, host: str, port: int | None) -> str:
        """Start the server in threads of its own; return the page's address.

        Args:
            host: the network interface; 127.0.0.1 for this machine alone.
            port: None for the first free one from `FIRST_PORT` on.

        Raises:
            OSError: the port is taken, or the host is no address of this machine.
        """
        try:
            self.blocks.launch(
                server_name=host,
                server_port=port,
                share=False,
                inbrowser=False,
                quiet=True,
                prevent_thread_lock=True,
                ssr_mode=False,
                footer_links=[],
                allowed_paths=[str(path.resolve()) for path in self.workshop.folders()],
                theme=_theme(),
                css=style(),
            )
        except OSError as error:
            raise OSError(
                f"host={host} port={port or 'null'} cannot be served on; pass another, or "
                f"port=null for a free one"
            ) from error
        return str(self.blocks.local_url)

    def wait(self) -> None:
        """Until Ctrl-C, which closes the server.

        Raises:
            KeyboardInterrupt: then.
        """
        try:
            while True:
                time.sleep(3600)
        finally:
            self.blocks.close(verbose=False)

    def _build(self) -> Any:
        step = self.workshop.synthesizer.trained.step
        kept = HOURS_KEPT * 3600
        with gr.Blocks(
            title="audiolm", analytics_enabled=False, delete_cache=(3600, kept)
        ) as blocks:
            gr.Markdown(f"## audiolm\nStep {step:,} of `{self.workshop.checkpoint}`")
            with gr.Row():
                with gr.Column(scale=1, min_width=300):
                    self._build_controls()
                with gr.Column(scale=3, min_width=300):
                    with gr.Tab("Generate"):
                        self._build_generate()
                    with gr.Tab("Compare"):
                        self._build_compare()
                    with gr.Tab("Codec"):
                        self._build_codec()
            blocks.unload(self._leave)
        blocks.queue(default_concurrency_limit=1, api_open=False)
        return blocks

    def _build_controls(self) -> None:
        synthesizer = self.workshop.synthesizer
        self.conditions = {
            control.name: _component(control) for control in condition_controls(synthesizer)
        }
        with gr.Group():
            self.inputs["num_samples"] = _number("num_samples", "how many", self.first)
            self.inputs["duration"] = _number(
                "duration", "seconds of each at most, with the recording it continues", self.first
            )
            self.inputs["seed"] = _number(
                "seed", "of the first; the same seed gives the same sample", self.first
            )
        another = gr.Button("another seed", size="sm")
        another.click(_another_seed, None, self.inputs["seed"], queue=False, api_visibility=PRIVATE)
        with gr.Accordion("Continue a recording", open=False):
            self.inputs["prompt"] = _recording("a recording to continue")
            self.inputs["prompt_duration"] = gr.Textbox(
                "", label="prompt_duration", info="seconds of it from its start; empty: all"
            )
        with gr.Accordion("Sampling", open=False):
            for control in sampling_controls(synthesizer, self.workshop.sampling):
                self.inputs[control.name] = _component(control)

    def _build_generate(self) -> None:
        with gr.Row():
            go = gr.Button("Generate", variant="primary", elem_id="generate")
            stop = gr.Button("Stop", elem_id="stop")
        status = gr.Markdown("", elem_id="status", min_height=60)
        if self.can_stream:
            play = gr.Checkbox(False, label="play the first sample while it is generated")
            live = gr.Audio(
                label="the first sample, while it is generated",
                streaming=True, autoplay=True, interactive=False, visible=False, elem_id="live",
                buttons=[],
            )  # fmt: skip
            play.change(
                lambda on: gr.update(visible=on),
                play, live, queue=False, api_visibility=PRIVATE, show_progress="hidden",
            )  # fmt: skip
        else:
            play = gr.Checkbox(
                False,
                label="play the first sample while it is generated: needs the program ffmpeg",
                interactive=False,
            )
            live = gr.State(None)
        shown = gr.HTML("", elem_id="results")
        kept = gr.State([])

        def generate(values: dict[Any, Any], request: gr.Request, progress: Any = PROGRESS) -> Any:
            with self._in_one_line():
                made = self.workshop.generate(_who(request), *self._given(values), _shows(progress))
                rate = self.workshop.synthesizer.codec.sample_rate
                try:
                    for block in _joined(made, round(BLOCK_SECONDS * rate)):
                        if isinstance(block, Tensor):
                            if values[play]:
                                yield {live: (rate, _integers(block))}
                        else:
                            cards, line = block
                            results = [*cards, *values[kept]][:MOST_RESULTS]
                            yield {kept: results, shown: cards_html(results), status: line}
                except StoppedByUser:
                    yield {status: STOPPED}

        self._on_click(go, generate, {*self._all_inputs(), play, kept}, [status, shown, kept, live])
        self._stops(stop, status)

    def _build_compare(self) -> None:
        names = list(self.workshop.others)
        gr.Markdown(
            "Samples of this checkpoint and of another, with the settings at the left and the same "
            "seeds." if names else "There is no other run in `runs/` to compare with."
        )  # fmt: skip
        other = gr.Dropdown(
            names, value=names[0] if names else None, label="the other checkpoint",
            visible=bool(names),
        )  # fmt: skip
        with gr.Row():
            go = gr.Button("Compare", variant="primary", elem_id="compare", visible=bool(names))
            stop = gr.Button("Stop", visible=bool(names))
        status = gr.Markdown("", min_height=60)
        shown = gr.HTML("", elem_id="pairs")

        def compare(values: dict[Any, Any], request: gr.Request, progress: Any = PROGRESS) -> Any:
            with self._in_one_line():
                try:
                    cards = self.workshop.compare(
                        _who(request), values[other], *self._given(values), _shows(progress)
                    )
                except StoppedByUser:
                    return {status: STOPPED}
                return {shown: cards_html(cards, "pairs"), status: ""}

        self._on_click(go, compare, {*self._all_inputs(), other}, [status, shown])
        self._stops(stop, status)

    def _build_codec(self) -> None:
        codec = self.workshop.synthesizer.codec
        gr.Markdown(
            f"A recording through the model's codec, with fewer and more of its "
            f"{codec.num_codebooks} codebooks: the first {MOST_SECONDS:g} s of it."
        )
        recording = _recording("a recording")
        go = gr.Button("Encode and decode", variant="primary", elem_id="codec")
        status = gr.Markdown("", min_height=60)
        shown = gr.HTML("", elem_id="codebooks")

        def encode(path: str | None) -> Iterator[Any]:
            with self._in_one_line():
                if path is None:
                    raise ValueError("there is no recording; give one by file or microphone")
                cards: list[Card] = []
                for count, waveform in by_codebooks(codec, path):
                    title = f"{count} codebooks" if count > 1 else "1 codebook"
                    about = f"{bits_per_second(codec, count):,.0f} bits/s"
                    if count == 0:
                        title, about = "the recording", f"at {codec.sample_rate:,} Hz"
                    cards.append(card_of_sound(title, about, waveform, codec.sample_rate))
                    yield cards_html(cards), ""

        go.click(encode, recording, [shown, status], show_progress_on=status, **IN_TURN)

    def _on_click(self, button: Any, work: Any, inputs: set[Any], outputs: list[Any]) -> None:
        """Have a button do some work that can be stopped, also while it waits for its turn.

        outputs: the first of them shows how far it is.
        """
        entered = button.click(self._enter, None, None, queue=False, api_visibility=PRIVATE)
        entered.then(work, inputs, outputs, show_progress_on=outputs[0], **IN_TURN)

    def _stops(self, button: Any, status: Any) -> None:
        button.click(
            self._stop, None, status,
            queue=False, api_visibility=PRIVATE, show_progress="hidden",
        )  # fmt: skip

    def _all_inputs(self) -> set[Any]:
        return {*self.inputs.values(), *self.conditions.values()}

    def _given(self, values: Mapping[Any, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Values and conditions, of what Gradio has by component."""
        return (
            {name: values[component] for name, component in self.inputs.items()},
            {name: values[component] for name, component in self.conditions.items()},
        )

    def _enter(self, request: gr.Request) -> None:
        self.workshop.enter(_who(request))

    def _stop(self, request: gr.Request) -> Any:
        if self.workshop.stop(_who(request)):
            return gr.skip()  # what is stopped says so itself
        return "there is nothing of yours to stop"

    def _leave(self, request: gr.Request) -> None:
        """Somebody closed the page."""
        self.workshop.stop(_who(request), leaving=True)

    def _in_one_line(self) -> _Errors:
        return _Errors(self.explain)


class _Errors:
    """Turns errors into Gradio's own, with a line for the user."""

    def __init__(self, explain: Explain) -> None:
        self.explain = explain

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is None or isinstance(error, GeneratorExit):
            return
        line = self.explain(error)
        if isinstance(error, AudioError):  # without the folder that it was put into
            line = f"{one_line(error.path.name)}: {error.reason}"
        if line is None:
            log.error("the app failed", exc_info=error)
            line = "this is a fault of the program; its terminal says more"
        raise gr.Error(str(escape(line)), duration=None, print_exception=False) from None


PRIVATE = "private"
"""Of an event: no API of its own."""

IN_TURN: dict[str, Any] = {"concurrency_id": "model", "api_visibility": PRIVATE}
"""Of an event that uses a model or a codec: one at a time of all."""

STOPPED = "stopped; nothing was kept"

PROGRESS = gr.Progress()


def _theme() -> Any:
    """Gradio's, with fonts that every machine has, and small print that can be read."""
    return gr.themes.Default(
        primary_hue="blue", font=["system-ui", "sans-serif"], font_mono=["monospace"]
    ).set(
        block_info_text_color="*neutral_600",
        block_title_text_color="*neutral_800",
        block_label_text_color="*neutral_700",
        block_info_text_color_dark="*neutral_300",
    )


def _who(request: gr.Request) -> str:
    """A page that is open somewhere."""
    return str(request.session_hash)


def _component(control: Control) -> Any:
    about: dict[str, Any] = {"label": control.name, "info": control.help}
    if control.kind == "menu":
        return gr.Dropdown(list(control.choices), value=control.value, **about)
    if control.kind == "text":
        return gr.Textbox(control.value, **about)
    if control.kind == "switch":
        return gr.Checkbox(control.value, **about)
    return gr.Number(control.value, **about)


def _number(name: str, about: str, first: Mapping[str, Any]) -> Any:
    return gr.Number(first[name], label=name, info=about)


def _recording(label: str) -> Any:
    return gr.Audio(label=label, sources=["upload", "microphone"], type="filepath", buttons=[])


def _another_seed() -> int:
    return random.randint(0, MAX_SEED // 1000)


def _shows(progress: Any) -> Callable[[int, int | None], None]:
    def show(done: int, of: int | None) -> None:
        progress((done, of), unit="frames")

    return show


def _joined(made: Any, num_samples: int) -> Iterator[Any]:
    """Blocks of at least so many samples, of a generator's, and then what it returns."""
    waiting: list[Tensor] = []
    while True:
        try:
            waiting.append(next(made))
        except StopIteration as end:
            if waiting:
                yield torch.cat(waiting, dim=1)
            yield end.value
            return
        if sum(block.shape[1] for block in waiting) >= num_samples:
            yield torch.cat(waiting, dim=1)
            waiting = []


def _integers(block: Tensor) -> Any:
    """(N, C) int16: of floats Gradio scales each block by itself to full scale."""
    return np.frombuffer(pcm_16(block).data, "<i2").reshape(-1, block.shape[0])
