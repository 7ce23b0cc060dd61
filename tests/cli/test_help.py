"""--help is the script's own, and what it shows is there."""

from __future__ import annotations

import runpy
import shlex
import sys
from pathlib import Path

import pytest
from hydra.errors import HydraException

from audiolm.cli.compose import CONFIGS, compose
from audiolm.cli.groups import NOTHING, OF_RECORDINGS, choices_of, groups_of, resolve_null
from audiolm.cli.help import EXAMPLES, help_text
from audiolm.cli.overrides import quote_path, take_conditions

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(file.stem for file in CONFIGS.glob("*.yaml"))


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_a_script_prints_its_own_help(
    script: str, flag: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ROOT / "scripts" / f"{script}.py"
    monkeypatch.syspath_prepend(ROOT / "scripts")
    monkeypatch.setattr(sys, "argv", [str(path), "model=none_such", flag])
    runpy.run_path(str(path), run_name="__main__")
    out = capsys.readouterr().out
    doc = path.read_text().split('"""')[1]
    assert out.startswith(doc.strip().splitlines()[0])
    assert script == "app" or "app.py" not in out  # which is what Hydra would call a script
    assert out.count(f"python scripts/{script}.py") >= 11  # ten examples, and --cfg job
    for group, default in groups_of(script).items():
        assert f"{group}={default or 'null'}" in out
        assert all(choice in out for choice in choices_of(group, script))
    assert all(len(line) <= 120 for line in out.splitlines())


@pytest.mark.parametrize("script", SCRIPTS)
def test_ten_examples_are_commands_of_the_script(script: str) -> None:
    assert len(EXAMPLES[script]) == 10
    for overrides, what in EXAMPLES[script]:
        assert what and f"  {what}" in help_text(script, None)
        arguments = shlex.split(overrides)
        if script == "generate":
            arguments = take_conditions(arguments)[1]
        compose(script, [quote_path(argument) for argument in arguments])


@pytest.mark.parametrize("script", ["train", "train_codec"])
def test_experiments_are_those_that_the_script_can_do(script: str) -> None:
    own = compose(script, []).keys()
    done = []
    for file in sorted((CONFIGS / "experiment").glob("*.yaml")):
        try:
            composed = compose(script, [f"experiment={file.stem}"])
        except HydraException:  # it chooses from a group that the script has not
            continue
        if composed.keys() <= own:
            done.append(file.stem)
    assert done and done == choices_of("experiment", script)


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_group_can_be_null_or_says_what_to_pass(script: str) -> None:
    for group, default in groups_of(script).items():
        for argument in (f"{group}=null", f"~{group}"):
            if group in NOTHING:
                (override,) = [resolve_null(argument, script)]
                assert override == f"{group}={NOTHING[group]}"
                assert NOTHING[group] in choices_of(group, script)
                compose(script, [override])
            elif default is None:
                assert resolve_null(argument, script) is None
            else:
                with pytest.raises(ValueError, match=f"^{argument} leaves nothing .* choose "):
                    resolve_null(argument, script)
    for argument in ("seed=null", "sampling.top_k=null", "logger=csv", "~data.path", "--cfg"):
        assert resolve_null(argument, script) == argument


@pytest.mark.parametrize("script", sorted(EXAMPLES))
def test_only_data_that_a_script_can_work_with_are_offered(script: str) -> None:
    needs_recordings = script in OF_RECORDINGS
    offered = choices_of("data", script)
    assert {"folder", "manifest"} <= set(offered)
    assert {"store", "mix"} & set(offered) == (set() if needs_recordings else {"store", "mix"})
