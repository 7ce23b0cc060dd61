"""What `--help` prints: what a script does, its groups of settings, and ten commands."""

from __future__ import annotations

import textwrap

from audiolm.cli.groups import choices_of, groups_of

EXAMPLES: dict[str, list[tuple[str, str]]] = {
    "train": [
        ("", "a demo set of melodies, a small model: four minutes on a CPU"),
        ("data=folder data.path=DIR", "your own recordings"),
        ("data=folder data.path=DIR codec=encodec_24khz model=small context=10", "at 24 kHz"),
        ("data=store data.path=STORE", "a finished token store"),
        ("data=folder data.path=DIR conditioning=label data.label_from=folder", "by folder's name"),
        ("data=folder data.path=DIR conditioning=text", "by the text in metadata.csv"),
        ("ckpt_path=last", "resume the newest run, with the settings that it had"),
        ("trainer.max_steps=20000 optim.lr=1e-3 callbacks.ema.decay=0.999", "longer"),
        ("init_from=RUN data=folder data.path=DIR optim.lr=3e-4", "fine-tune the model of a run"),
        ("experiment=overfit", "one batch again and again: does it learn at all?"),
    ],
    "generate": [
        ("", "four samples, from the newest run's best checkpoint"),
        ("ckpt_path=FILE out=DIR", "from a checkpoint, into a folder"),
        ("num_samples=16 duration=10 seed=100", "sixteen of ten seconds, of seeds 100 to 115"),
        ("prompt=FILE prompt_duration=2 duration=8", "continue a recording"),
        ("conditioning.label=7 conditioning.speaker=theo", "of a model with conditions"),
        ("conditioning.text='a sentence' sampling.guidance=2", "closer to the conditions"),
        ("sampling.temperature=0.6 sampling.top_k=50", "safer and duller"),
        ("sampling.end=false duration=60", "for the whole duration"),
        ("best_of=8", "the most probable one of eight, for each sample"),
        ("stream=true num_samples=1 duration=inf", "a WAV to play while it grows, until Ctrl-C"),
    ],
    "evaluate": [
        ("", "the newest run's best checkpoint, on its own validation set"),
        ("ckpt_path=FILE", "a checkpoint"),
        ("ckpt_path=FILE data=folder data.path=DIR", "on other recordings"),
        ("ckpt_path=FILE data=store data.path=STORE", "on a finished token store"),
        ("num_samples=0", "the loss alone"),
        ("num_samples=100 duration=5", "more samples, for closer distances"),
        ("sampling.temperature=1 sampling.top_k=null", "samples of the model's own distribution"),
        ("audit=false", "without the search for what was memorised"),
        ("published=[fad,dnsmos]", "published metrics too; needs pip install -e '.[metrics]'"),
        ("out=FILE.json logger=csv", "into a file of your choice"),
    ],
    "export": [
        ("", "the newest run's best checkpoint, into exported/ in its folder"),
        ("ckpt_path=FILE out=DIR", "a checkpoint, into a folder"),
        ("out=DIR dtype=bfloat16", "half as large"),
        ("num_samples=0", "without samples"),
        ("sampling.temperature=0.6 seed=7", "other samples than the run's own sampling gives"),
        ("num_samples=8 duration=10", "more and longer ones"),
        ("license=cc-by-4.0", "with the license that others may use it under"),
        ("title='Digits of two speakers'", "with another title of the model card"),
        ("license=mit push=OWNER/NAME", "and onto the Hugging Face hub"),
        ("ckpt_path=DIR push=OWNER/NAME private=true", "an exported folder, as it is"),
    ],
    "import_model": [
        ("path=hf://facebook/musicgen-small out=DIR", "from the Hugging Face hub"),
        ("path=DIR out=DIR dtype=bfloat16", "from a folder, half as large"),
        ("path=DIR out=DIR codec_path=DIR text_encoder_path=DIR", "of audiocraft's files alone"),
        ("path=DIR out=DIR context_seconds=10", "with a shorter context"),
        ("path=DIR out=DIR base_model=facebook/audiogen-medium", "with its name in the model card"),
        ("path=DIR out=DIR max_tokens=256", "with longer texts"),
        ("path=hf://facebook/musicgen-stereo-small out=DIR", "in stereo"),
        ("path=hf://OWNER/NAME@REVISION out=DIR", "a version of it"),
        ("path=DIR out=DIR license=cc-by-4.0", "a model of other terms"),
        ("path=DIR out=DIR dtype=float16 codec_path=DIR", "with the EnCodec of another folder"),
    ],
    "prepare": [
        ("data=folder data.path=DIR", "check a folder's recordings, and encode them"),
        ("check=true data=folder data.path=DIR", "check only"),
        ("data=folder data.path=DIR codec=encodec_24khz", "with EnCodec at 24 kHz"),
        ("data=folder data.path=DIR codec=local codec.path=DIR", "with a codec of your own"),
        ("data=manifest data.path=FILE", "a list of recordings, or of parts of them"),
        ("data=librispeech data.root=DIR data.download=true", "a public set"),
        ("data=huggingface data.name=NAME", "a Hugging Face dataset"),
        ("data=folder data.path=DIR data.store=STORE", "into a store of your choice"),
        ("data=folder data.path=DIR rules.very_long.action=drop", "another rule"),
        ("data=folder data.path=DIR part=0 num_parts=4", "the first of four parts of the work"),
    ],
    "train_codec": [
        ("data.path=DIR", "a codec at 16 kHz, of a folder's recordings"),
        ("data.path=DIR codec_model=small_8khz", "at 8 kHz"),
        ("data.path=DIR trainer.max_steps=2000 trainer.val_check_interval=200", "a first look"),
        ("data.path=DIR codec_model.n_q=8", "eight codebooks"),
        ("data.path=DIR data.weights='{music: 2}'", "a subfolder twice as often"),
        ("data.path=DIR data.augment.speed=0.1 data.augment.noise=0.3", "varied segments"),
        ("data.path=DIR adversarial.enabled=true", "with a discriminator: ten times slower"),
        ("data.path=DIR ckpt_path=last", "resume the newest run"),
        ("data.path=DIR name=voice logger=csv", "without Weights & Biases, in runs/voice"),
        ("experiment=voice_codec data.path=DIR", "for one voice"),
    ],
    "report": [
        ("", "the newest run's page, in its folder"),
        ("run=RUN", "another run's, also of one that still goes on"),
        ("run=RUN out=FILE.html", "into a file of your choice"),
        ("compare=[RUN,RUN]", "two runs beside each other"),
        ("compare=[RUN,RUN,RUN] out=FILE.html", "three, into a file of your choice"),
        ("run=RUN compare=RUN", "the same as compare=[RUN,RUN]"),
        ("compare=runs", "all runs, by validation loss"),
        ("compare=runs/NAME/TIME", "those of one sweep (--multirun)"),
        ("compare=runs/demo", "all runs of that name"),
        ("run=RUN compare=runs/NAME/TIME", "a run beside those of a sweep"),
    ],
    "app": [
        ("", "the newest run's best checkpoint, at an address of this machine"),
        ("ckpt_path=FILE", "a checkpoint"),
        ("ckpt_path=RUN", "a run's best one"),
        ("ckpt_path=RUN compare=RUN", "with another beside it, in the tab that compares"),
        ("port=8000", "at a port of your choice"),
        ("host=0.0.0.0", "for everyone in the network, who may then use it"),
        ("out=DIR", "samples into a folder of your choice"),
        ("num_samples=4 duration=10 seed=100", "what the page shows at first"),
        ("sampling.temperature=0.6 sampling.top_k=50", "and of the sampling"),
        ("max_seconds=60", "at most so much sound at once"),
    ],
    "benchmark": [
        ("", "everything, beside the machine's limits"),
        ("sections=[encode]", "encoding alone"),
        ("sections=[encode] audio=DIR", "of your own recordings"),
        ("sections=[encode] full_size=true", "with a network of EnCodec's size"),
        ("sections=[generate] generate.batches=[1,4,16]", "other batches"),
        ("sections=[generate] generate.weights=[float32]", "one number format"),
        ("sections=[train] train.batch_size=8", "another batch"),
        ("sections=[train] train.peers=[]", "without other programs"),
        ("sections=[data] rounds=3", "fewer rounds"),
        ("out=FILE", "results into a file of your choice"),
    ],
}
"""By script: overrides, and what they do. DIR, FILE, RUN, STORE and NAME are the user's."""


def wants_help(arguments: list[str]) -> bool:
    """Whether they ask for help; `--hydra-help` is Hydra's own, of its flags."""
    return any(argument in ("--help", "-h") for argument in arguments)


def help_text(config_name: str, doc: str | None) -> str:
    """The help of a script.

    Args:
        config_name: of the script, such as "train".
        doc: its docstring.
    """
    about = (doc or "").strip()
    lines = [about]
    if groups_of(config_name):
        lines += ["", "Groups of settings, each with its default and its choices:", ""]
    for group, default in groups_of(config_name).items():
        text = f"{f'{group}={default}' if default else f'{group}=null':<24} "
        text += ", ".join(choices_of(group, config_name))
        lines += textwrap.wrap(text, 98, initial_indent="  ", subsequent_indent=" " * 27)
    lines += ["", "Examples:", ""]
    for overrides, what in EXAMPLES[config_name]:
        command = " ".join(filter(None, ["python", f"scripts/{config_name}.py", overrides]))
        lines += [f"  {command}", f"      {what}"]
    lines += [
        "",
        f"All settings: python scripts/{config_name}.py --cfg job. What they mean: docs/, and the "
        f"comments in configs/.",
        "An error with its traceback: HYDRA_FULL_ERROR=1 in front. Flags of Hydra: --hydra-help.",
    ]
    return "\n".join(lines)
