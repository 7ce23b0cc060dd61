"""Are the sentences that a model is conditioned on understood, as the recordings are?

    python scripts/tools/evaluate_speech.py CHECKPOINT --guidance 1 2 --temperature 0.8

Takes sentences of the training part and of the validation part of the store that the run was
trained on. What pocketsphinx understands (audiolm/evaluation/speech) of the real recordings,
of these after the model's own codec, and of samples of the same sentences gives three word error
rates; by each of two language models, which are the same for all three:

    general     pocketsphinx' own, of English
    collection  of the pairs of words in all texts of the store: expects what could be said, and so
                understands more of what a codec of few bits leaves

Writes evaluation.json, which has what was understood of every clip, and all clips as WAVs.

N audio samples, K codebooks, T codec frames.
"""

from __future__ import annotations

from audiolm.cli.loading import start_loading

if __name__ == "__main__":
    start_loading()  # the other imports take seconds

import argparse
from pathlib import Path

import numpy as np
import torch

from audiolm.cli.arguments import add_sampling_options, run_tool, samplings_of
from audiolm.evaluation.conditioned import generate_samples, load_conditioned, write_evaluation
from audiolm.evaluation.speech.scores import COLLECTION, GENERAL, SentenceScorer
from audiolm.evaluation.speech.sentences import (
    FEWEST_WORDS,
    TRAINING,
    VALIDATION,
    find_sentences,
    find_stores,
    recording_of,
    texts_of,
)
from audiolm.evaluation.speech.table import table
from audiolm.tokens import check_codec


def run(options: argparse.Namespace) -> None:
    """What `main` does once the command line is read."""
    wanted = {TRAINING: options.training, VALIDATION: options.validation}
    for part, fewest in ((TRAINING, 1), (VALIDATION, 0)):
        if wanted[part] < fewest:
            raise ValueError(f"--{part} {wanted[part]}: must be at least {fewest}")
    samplings = samplings_of(options)
    trained, codec = load_conditioned(options.checkpoint, ())
    if trained.vocabulary is None or trained.vocabulary.text is None:
        raise ValueError(
            f"{options.checkpoint} is not conditioned on text; train with conditioning=text"
        )
    stores, valid_fraction = find_stores(options.checkpoint, options.store)
    for store in stores:
        check_codec(store, trained.codec)
    sentences = find_sentences(stores, trained, valid_fraction)
    for part, most in wanted.items():
        if len(sentences[part]) < most:
            print(f"{len(sentences[part])} {part} sentences, not {most}: there are no more")
        sentences[part] = sentences[part][:most]
    if not sentences[TRAINING]:
        raise ValueError(
            f"no clip has a text of {FEWEST_WORDS} words or more and fits into the model's window"
        )

    rate = codec.sample_rate
    out = options.out or options.checkpoint.resolve().parent / "speech_evaluation"
    texts = texts_of(stores, trained.vocabulary.text)
    scorer = SentenceScorer(sentences, texts, out, options.language_model)
    real = [recording_of(one, rate) for one in scorer.sentences]
    codes = [
        torch.from_numpy(one.store.codes(one.clip).astype(np.int64)) for one in scorer.sentences
    ]
    decoded = [
        codec.decode(c[None], min(w.shape[1], c.shape[1] * codec.hop_length))[0]
        for c, w in zip(codes, real, strict=True)
    ]
    rows = {
        "real": scorer.score("real", real, rate),
        "reconstructed": scorer.score("reconstructed", decoded, rate),
    }
    conditions = [one.conditions for one in scorer.sentences]
    for name, sampling in samplings.items():
        samples = generate_samples(
            trained, codec, conditions, sampling, options.seed, options.best_of
        )
        clips = [sample.waveform for sample in samples]
        rows[name] = scorer.score(name, clips, rate, sum(sample.ended for sample in samples))
    write_evaluation(
        out,
        options.checkpoint,
        trained,
        codec,
        rows,
        table(rows, sentences),
        samplings=samplings,
        seed=options.seed,
        best_of=options.best_of,
        stores=[str(store.path) for store in stores],
        sentences={
            part: {one.id: " ".join(one.words) for one in chosen}
            for part, chosen in sentences.items()
        },
    )


def main() -> None:
    """Evaluate the checkpoint that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--training", type=int, default=50, help="sentences of the training part")
    parser.add_argument(
        "--validation", type=int, default=20, help="sentences of the validation part"
    )
    parser.add_argument("--store", type=Path, nargs="+", help="where the run's codes are now")
    parser.add_argument(
        "--language-model",
        nargs="+",
        choices=(GENERAL, COLLECTION),
        default=[GENERAL, COLLECTION],
        help="the general one takes minutes where little can be understood",
    )
    add_sampling_options(parser)
    parser.add_argument(
        "--out", type=Path, help="folder; default: speech_evaluation beside CHECKPOINT"
    )
    run_tool(parser, run)


if __name__ == "__main__":
    main()
