"""The sections of a run's page: what is said of a run, with every number from its file."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from audiolm.report.charts import baselines_of
from audiolm.report.clips import Wanted
from audiolm.report.files import (
    CONFIG,
    EVALUATION,
    LISTEN,
    METRICS,
    OVERRIDES,
    PLAN,
    SCORES,
    SESSIONS,
    RunFiles,
    SampleFile,
    as_text,
)

MOST_STEPS = 6
"""At which samples are shown: the first, the last, and evenly between."""
MOST_CLIPS = 3
"""Of each other kind: pieces, samples of an evaluation."""
MOST_ROWS = 12
"""Of a table of validations."""

EXPORT = Path(__file__).resolve().parents[2] / "scripts" / "export.py"
"""Not there where the package is installed without its scripts."""

Line = tuple[str, Markup]


def verdict(files: RunFiles) -> list[Line]:
    """How good the model is, in five lines."""
    return [
        ("loss", _best(files)),
        ("baselines", _baselines(files)),
        ("training", _steps(files)),
        ("time", _time(files)),
        ("sound", _sound(files)),
    ]


def _best(files: RunFiles) -> Markup:
    best = files.best_row()
    if best is None:
        return Markup("no validation was logged; see “missing” below")
    found = files.number(METRICS, best, f"valid/{files.loss}")
    at = files.number(METRICS, best, "step")
    if files.trains_a_codec:
        return Markup("<strong>{}</strong> validation loss, at step {}").format(found, at)
    rate = files.number(METRICS, best, "valid/bits_per_second", style=",.0f")
    return Markup(
        "<strong>{} nats per code</strong>, {} bits per second of audio: the best validation, "
        "logged at step {}"
    ).format(found, rate, at)


def _baselines(files: RunFiles) -> Markup:
    if files.trains_a_codec:
        return Markup("none: the loss of a training of a codec has no unit")
    words = {
        "unigram": "knowing how often codes occur (unigram)",
        "bigram": "knowing the code before (bigram)",
        "uniform": "guessing (uniform)",
    }
    parts = []
    for name in baselines_of(files):
        if files.look_up(PLAN, "baselines", name) is not None:
            nats = files.number(PLAN, "baselines", name, "nats_per_code")
            bits = files.number(PLAN, "baselines", name, "bits_per_second", style=",.0f")
        else:
            nats = files.number(EVALUATION, "nats_per_code", -1, name)
            bits = files.number(EVALUATION, "baselines_bits_per_second", name, style=",.0f")
        parts.append(Markup("{} nats ({} bits/s) {}").format(nats, bits, words[name]))
    return Markup("; ").join(parts) or Markup("not known: neither plan.json nor evaluation.json")


def _steps(files: RunFiles) -> Markup:
    planned = files.number(PLAN, "max_steps")
    if files.plan is None:
        planned = files.number(CONFIG, "trainer", "max_steps")
    sessions = files.sessions
    resumed = sum(session.get("resumed_from") is not None for session in sessions)
    again = Markup(", resumed {} times").format(resumed) if resumed > 1 else Markup("")
    again = Markup(", resumed once") if resumed == 1 else again
    ended = sessions[-1].get("ended") if sessions else None
    if ended is None:
        last = Markup("no step")
        if files.rows:
            last = Markup("step {}").format(files.number(METRICS, len(files.rows) - 1, "step"))
        why = "it still runs, or was killed" if sessions else "how it ended was not recorded"
        return Markup("{} of {} is the last one logged{}: {}").format(last, planned, again, why)
    step = files.number(SESSIONS, len(sessions) - 1, "ended", "step")
    how = "finished"
    limit = files.look_up(PLAN, "max_steps") or files.look_up(CONFIG, "trainer", "max_steps")
    if ended.get("interrupted"):
        how = "stopped by the user"
    elif ended.get("error"):
        how = f"ended by an error: {as_text(ended['error'])}"
    elif isinstance(limit, int) and ended.get("step", 0) < limit:
        how = "ended early, as the validation loss no longer fell or the time was up"
    return Markup("{} of {} steps, {}{}").format(step, planned, how, again)


def _time(files: RunFiles) -> Markup:
    parts = []
    for index, session in enumerate(files.sessions):
        if session.get("ended"):
            parts.append(files.number(SESSIONS, index, "ended", "seconds", style=",.1f", scale=60))
    took = Markup(" + ").join(parts)
    text = Markup("{} minutes of training").format(took) if parts else Markup("not recorded yet")
    fast = [i for i, row in enumerate(files.rows) if "train/codes_per_second" in row]
    if fast:
        text += Markup(", {} at the end").format(_speed(files, fast[-1]))
    for index, session in list(enumerate(files.sessions))[-1:]:
        if session.get("machine"):
            text += Markup(", on {}").format(files.text(SESSIONS, index, "machine", "cpu"))
    return text


def _speed(files: RunFiles, row: int) -> Markup:
    """Codes a second of training as audio a minute, where it is known what a second has."""
    place = (METRICS, row, "train/codes_per_second")
    codec = files.look_up(PLAN, "codec") or {}
    codes = codec.get("num_codebooks", 0) * codec.get("frame_rate", 0)  # of a second of audio
    if not codes:
        return Markup("{} codes a second").format(files.number(*place, style=",.0f"))
    hours = files.look_up(*place) >= 60 * codes
    amount = files.number(*place, style=",.1f", scale=float(codes * (60 if hours else 1)))
    return Markup("{} {} of audio a minute").format(amount, "hours" if hours else "minutes")


def _sound(files: RunFiles) -> Markup:
    if files.scores is not None:

        def of(kind: str, name: str) -> Markup:
            return files.number(SCORES, kind, name, style=".2f")

        return Markup(
            "legal notes {} (real melodies after the codec {}), legal transitions {} ({}), "
            "longest loop {} s"
        ).format(
            of("samples", "legal_notes"),
            of("ceiling", "legal_notes"),
            of("samples", "legal_transitions"),
            of("ceiling", "legal_transitions"),
            of("samples", "longest_loop"),
        )
    if files.look_up(EVALUATION, "clips"):

        def rate(name: str) -> Markup:
            return files.number(EVALUATION, "clips", name, "generated", style=".0f", scale=0.01)

        distance = ("clips", "frechet", "log_mel")
        return Markup(
            "{}% of the samples are silent for too long, {}% loop; Fréchet distance of log mel {} "
            "(training clips {})"
        ).format(
            rate("silence"),
            rate("loop"),
            files.number(EVALUATION, *distance, "generated"),
            files.number(EVALUATION, *distance, "training"),
        )
    return Markup("not measured: run scripts/evaluate.py; listen below")


def validations(files: RunFiles) -> tuple[list[str], list[list[Markup]]]:
    """The validations as a table, thinned, the last and the best among them."""
    names = [f"valid/{files.loss}"]
    if not files.trains_a_codec:
        names += ["valid/bits_per_second"]
        names += [f"valid/nats_per_code_k{k}" for k in range(64)]
    names = [name for name in names if files.curve(name)[0]]
    found = [i for i, row in enumerate(files.rows) if f"valid/{files.loss}" in row]
    chosen = set(found[:: max(1, -(-len(found) // MOST_ROWS))] + found[-1:])
    best = files.best_row()
    rows = []
    for i in sorted(chosen | ({best} if best is not None else set())):
        cells = [files.number(METRICS, i, name) for name in ["step", *names]]
        if i == best:
            cells[0] = Markup("{} best").format(cells[0])
        rows.append(cells)
    return ["step", *(name.removeprefix("valid/").replace("_", " ") for name in names)], rows


def wanted_clips(files: RunFiles) -> list[Wanted]:
    """What there is to listen to, and in which order it is taken where the page has no room."""
    samples = files.samples()
    chosen = evenly(sorted({sample.step for sample in samples}), MOST_STEPS)
    last = chosen[-1] if chosen else 0
    wanted = [
        Wanted(
            f"step {sample.step:,}",
            f"step {sample.step:,}, sample {sample.number}{_seed(files, sample)}",
            sample.name,
            (1 if sample.step == last else 3) + sample.number,
            conditions(files, PLAN, sample.number),
        )
        for sample in samples
        if sample.step in chosen
    ]
    _note_unknown_conditions(files)
    run = files.run
    for clip in (files.look_up(LISTEN, "clips") or [])[:2]:
        for kind, title in (("original", "real clip"), ("decoded", "the same after the codec")):
            file = f"listen/{clip['name']}_{kind}.wav"
            if (run.path / file).is_file():
                rank = 0 if clip["name"] == "000" else 7
                group = "real clips" if rank == 0 else "codec"
                wanted.append(Wanted(group, f"{title}: {as_text(clip['id'])}", file, rank))
    if files.trains_a_codec:
        for path in sorted(run.reconstructions.glob("original_*.wav")):
            file = path.relative_to(run.path).as_posix()
            wanted.append(Wanted("real clips", path.stem.replace("_", " "), file, 0))
    others = (
        (run.pieces, "best checkpoint", 5),
        (run.evaluation.with_suffix(""), "evaluation", 6),
    )
    for folder, group, rank in others:
        for i, path in enumerate(sorted(folder.glob("*.wav"))[:MOST_CLIPS]):
            file = path.relative_to(run.path).as_posix()
            about = conditions(files, EVALUATION, i) if group == "evaluation" else ""
            wanted.append(Wanted(group, path.stem.replace("_", " "), file, rank, about))
    return wanted


def _note_unknown_conditions(files: RunFiles) -> None:
    conditional = files.look_up(PLAN, "data", "conditions") is not None
    if conditional and files.look_up(PLAN, "sample_conditions") is None:
        files.missing[f"{PLAN}, sample_conditions"] = (
            "the run was started before they were written down; the pictures in samples/ name them"
        )


def conditions(files: RunFiles, file: str, number: int) -> Markup:
    """What a sample was conditioned on, of the file that says it."""
    place = ("sample_conditions", number)
    columns = files.look_up(file, *place)
    if not isinstance(columns, dict):
        return Markup("")
    return Markup(", ").join(
        Markup("{} {}").format(as_text(column), files.text(file, *place, column))
        for column in columns
    )


def _seed(files: RunFiles, sample: SampleFile) -> str:
    seed = files.config.get("seed")
    if files.trains_a_codec or not isinstance(seed, int):
        return ""
    return f", seed {seed + sample.number}"


def evenly(values: Sequence[int], most: int) -> list[int]:
    """At most so many of the values, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]


def evaluation_rows(files: RunFiles) -> list[list[Any]]:
    """The metrics of generated, validation and training clips, a row each."""
    clips = files.look_up(EVALUATION, "clips")
    if not clips:
        return []
    kinds = ("generated", "validation", "training")

    def row(label: str, *place: str, style: str = ".3f", scale: float = 1.0) -> list[Any]:
        cells = [
            files.number(EVALUATION, "clips", *place, kind, style=style, scale=scale)
            for kind in kinds
        ]
        return [label, *cells]

    rows = [
        row("Fréchet distance to validation, codec latents", "frechet", "latents"),
        row("Fréchet distance to validation, log mel", "frechet", "log_mel"),
        row("silent for too long, %", "silence", style=".0f", scale=0.01),
        row("loops, %", "loop", style=".0f", scale=0.01),
    ]
    rows += [
        [
            f"seconds, {name.replace('_', ' ')}",
            *(
                files.number(EVALUATION, "clips", "seconds", kind, name, style=".2f")
                for kind in kinds
            ),
        ]
        for name in ("lower_quartile", "median", "upper_quartile")
    ]
    return rows


def memorisation_rows(files: RunFiles) -> Iterator[list[Any]]:
    """For each sample the longest run of codes that it shares with the training set."""
    shared = files.look_up(EVALUATION, "memorisation") or {}
    for i in range(min(map(len, (runs["generated"] for runs in shared.values())), default=0)):
        yield [
            i,
            *(
                files.number(EVALUATION, "memorisation", name, "generated", i, key, style=".2f")
                for name in shared
                for key in ("seconds",)
            ),
            files.text(EVALUATION, "memorisation", "all_codebooks", "generated", i, "clip")
            if "clip" in shared.get("all_codebooks", {}).get("generated", [{}])[i]
            else "",
        ]


def split_rows(files: RunFiles) -> Iterator[list[Any]]:
    """Clips, hours and codes of each split of each store."""
    for i, store in enumerate(files.look_up(PLAN, "data", "stores") or []):
        place = ("data", "stores", i, "splits")
        for name in store["splits"]:
            yield [
                files.text(PLAN, "data", "stores", i, "path"),
                {"valid": "validation"}.get(name, name),
                files.number(PLAN, *place, name, "clips"),
                files.number(PLAN, *place, name, "hours"),
                files.number(PLAN, *place, name, "codes"),
            ]


def rule_rows(files: RunFiles) -> Iterator[list[Any]]:
    """What each rule of the check found, with examples."""
    for name, rule in (files.look_up(PLAN, "check", "rules") or {}).items():
        if not rule["clips"]:
            continue
        place = ("check", "rules", name)
        findings = files.look_up(PLAN, "check", "findings", name) or []
        examples = Markup("<br>").join(
            Markup("{}: {}").format(
                files.text(PLAN, "check", "findings", name, i, "path"),
                files.text(PLAN, "check", "findings", name, i, "reason"),
            )
            for i in range(len(findings))
        )
        yield [
            name,
            files.text(PLAN, *place, "action"),
            files.number(PLAN, *place, "clips"),
            files.number(PLAN, *place, "hours"),
            examples,
        ]


def codec_rows(files: RunFiles) -> Iterator[list[Any]]:
    """How far each recording that was compared is from its codes decoded."""
    for i, _ in enumerate(files.look_up(LISTEN, "clips") or []):
        yield [
            files.text(LISTEN, "clips", i, "id"),
            files.number(LISTEN, "clips", i, "si_snr", style=".1f"),
            files.number(LISTEN, "clips", i, "mel_distance", style=".1f"),
            files.number(LISTEN, "clips", i, "shuffled", style=".1f"),
        ]


def setting_rows(files: RunFiles) -> list[list[Any]]:
    """The settings that differ from the defaults, or what was typed where that is not known."""
    changed = files.look_up(PLAN, "changed_settings")
    if changed is not None:
        return [
            [
                key,
                files.text(PLAN, "changed_settings", key, "value"),
                files.text(PLAN, "changed_settings", key, "default"),
            ]
            for key in changed
        ]
    return [[files.text(OVERRIDES, i), "", ""] for i in range(len(files.overrides))]


def session_rows(files: RunFiles) -> Iterator[list[Line]]:
    """Machine, versions and commit of each session."""
    for i, session in enumerate(files.sessions):
        rows: list[Line] = [("started", files.text(SESSIONS, i, "started"))]
        if session.get("resumed_from"):
            rows.append(("resumed from", files.text(SESSIONS, i, "resumed_from")))
        if session.get("ended"):
            rows.append(("ended", files.text(SESSIONS, i, "ended", "time")))
            rows.append(("step", files.number(SESSIONS, i, "ended", "step")))
        for name, value in (session.get("machine") or {}).items():
            place = (SESSIONS, i, "machine", name)
            if name == "packages":
                versions = (
                    Markup("{} {}").format(package, files.text(*place, package))
                    for package in value
                )
                rows.append(("versions", Markup(", ").join(versions)))
            elif value is not None:
                rows.append((name.replace("_", " "), files.text(*place)))
        if session.get("code"):
            commit = files.text(SESSIONS, i, "code", "commit")
            changed = files.number(SESSIONS, i, "code", "changed_files")
            rows.append(("commit", Markup("{}, files changed since: {}").format(commit, changed)))
        yield rows


def commands(files: RunFiles) -> list[tuple[str, str]]:
    """What to type to repeat the run, continue it, generate with it, evaluate and export it."""
    first = next((session["command"] for session in files.sessions), None)
    if first is None:
        script = "train_codec" if files.trains_a_codec else "train"
        first = ["python", f"scripts/{script}.py", *files.overrides]
    first = [word for word in first if not word.startswith(("ckpt_path=", "hydra.run.dir="))]
    here = str(files.run.path)
    found = [
        ("repeat it", first),
        ("continue it", [*first, "ckpt_path=last", f"hydra.run.dir={here}"]),
    ]
    if files.trains_a_codec:
        found.append(
            (
                "train on its codes",
                ["python", "scripts/train.py", "codec=local", f"codec.path={here}/codec"],
            )
        )
    else:
        arguments = files.look_up(PLAN, "generate") or []
        generate = ["python", "scripts/generate.py", f"ckpt_path={here}", *arguments]
        found += [
            ("generate", generate),
            ("evaluate", ["python", "scripts/evaluate.py", f"ckpt_path={here}"]),
        ]
        if EXPORT.is_file():
            export = ["python", "scripts/export.py", f"ckpt_path={here}", f"out={here}/exported"]
            found.append(("export", export))
    found.append(("this page again", ["python", "scripts/report.py", f"run={here}"]))
    return [(what, as_text(shlex.join(words))) for what, words in found]
