"""Commands in any language: their environment, their output, their exit."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

import freezethaw as ft
from freezethaw.errors import Diverged, OutOfMemory, Preempted, TrainingError
from freezethaw.trainers import command, limited
from freezethaw.trainers.command_process import read_line
from tests.trainers.bench import Bench, script

# doubles a number in each epoch; its whole state is one file
SHELL = """#!/bin/sh
set -e
value=$FREEZETHAW_SEED
[ -z "$FREEZETHAW_LOAD" ] || value=$(cat "$FREEZETHAW_LOAD/value")
echo "configuration $(cat "$FREEZETHAW_CONFIG")"
epoch=$FREEZETHAW_FROM
while [ "$epoch" -lt "$FREEZETHAW_TO" ]; do
  epoch=$((epoch + 1))
  value=$((value * 2))
  echo "{\\"epoch\\": $epoch, \\"loss\\": $value, \\"speed\\": 3}"
done
echo "$value" > "$FREEZETHAW_SAVE/value"
"""
SAVE = 'echo 1 > "$FREEZETHAW_SAVE/value"'

C_PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
  double weight = 4.0, speed = 0.0, rate = 0.1;
  char path[4096], text[4096] = "";
  FILE *file = fopen(getenv("FREEZETHAW_CONFIG"), "r");
  fread(text, 1, sizeof text - 1, file);
  fclose(file);
  sscanf(strchr(text, ':') + 1, "%lf", &rate);
  if (*getenv("FREEZETHAW_LOAD")) {
    snprintf(path, sizeof path, "%s/state", getenv("FREEZETHAW_LOAD"));
    file = fopen(path, "rb");
    if (!file || fread(&weight, sizeof weight, 1, file) != 1 || fread(&speed, sizeof speed, 1, file) != 1) return 3;
    fclose(file);
  }
  for (int epoch = atoi(getenv("FREEZETHAW_FROM")) + 1; epoch <= atoi(getenv("FREEZETHAW_TO")); epoch++) {
    speed = 0.5 * speed - rate * weight;
    weight += speed;
    printf("{\"epoch\": %d, \"loss\": %.17g}\n", epoch, weight * weight);
    fflush(stdout);
  }
  snprintf(path, sizeof path, "%s/state", getenv("FREEZETHAW_SAVE"));
  file = fopen(path, "wb");
  fwrite(&weight, sizeof weight, 1, file);
  fwrite(&speed, sizeof speed, 1, file);
  return fclose(file) ? 4 : 0;
}
"""


def shell(folder, text):
    return command([str(script(folder, f"#!/bin/sh\n{text}\n"))], folder)


def test_a_shell_script_saves_and_loads_its_own_state(tmp_path):
    train = command([str(script(tmp_path, SHELL))])
    bench = Bench(tmp_path, seed=3)
    assert bench.train(train, [2, 3]) == [6.0, 12.0, 24.0]  # two decisions, the second continues the first
    assert bench.train(train, [5]) == [48.0, 96.0]  # thawed
    assert (bench.saved / "value").read_text() == "96\n"
    assert bench.metrics[0] == {"speed": 3}


def test_tuned(tmp_path):
    train = command([str(script(tmp_path, SHELL))])
    result = ft.tune(train, ft.Space(rate=ft.Float(0.0, 1.0)), max_epochs=4, budget=12)
    assert result.epochs == 12


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_c_program_saves_and_loads_its_own_state(tmp_path):
    source, program = tmp_path / "train.c", tmp_path / "train"
    source.write_text(C_PROGRAM)
    subprocess.run(["cc", "-o", program, source], check=True)
    (tmp_path / "whole").mkdir()
    whole = Bench(tmp_path / "whole").train(command([str(program)]), [6])
    bench = Bench(tmp_path)
    bench.train(command([str(program)]), [1, 3])
    bench.train(command([str(program)]), [6])
    assert bench.reported == whole


def test_its_environment(tmp_path):
    keep = tmp_path / "seen.json"
    code = f"""
import json, os
seen = {{k: v for k, v in os.environ.items() if k.startswith("FREEZETHAW_")}}
seen["content"] = json.load(open(seen["FREEZETHAW_CONFIG"]))
seen["empty"] = os.listdir(seen["FREEZETHAW_SAVE"]) == []
json.dump(seen, open({str(keep)!r}, "w"))
open(seen["FREEZETHAW_SAVE"] + "/x", "w").write("x")
print('{{"epoch": 1, "loss": 1}}')
"""
    python = script(tmp_path, "#!/usr/bin/env python3\n" + code, "train.py")
    Bench(tmp_path, {"rate": 0.5, "name": "ä"}, seed=11).train(command([str(python)]), [1])
    seen = json.loads(keep.read_text())
    assert (seen["FREEZETHAW_FROM"], seen["FREEZETHAW_TO"], seen["FREEZETHAW_SEED"]) == ("0", "1", "11")
    assert seen["FREEZETHAW_LOAD"] == ""
    assert seen["content"] == {"rate": 0.5, "name": "ä"}
    assert seen["empty"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"epoch": 1, "loss": 0.5}', (1, 0.5)),
        ('  {"epoch": 2.0, "loss": 3, "x": [1]}\n', (2, 3.0)),
        ('{"epoch": 1, "loss": NaN}', (1, math.nan)),
        ('{"epoch": 1, "loss": -nan}', (1, math.nan)),
        ('{"epoch": 1, "loss": inf}', (1, math.nan)),
        ('{"epoch": 1, "loss": null}', (1, math.nan)),
        ("epoch 1 loss 0.5", None),
        ('{"epoch": 1}', None),
        ('{"loss": 1}', None),
        ('{"epoch": 1, "loss": 0.5', None),
        ('[{"epoch": 1, "loss": 0.5}]', None),
        ("{" * 100_000, None),
        ("", None),
    ],
)
def test_lines_that_count(text, expected):
    line = read_line(text)
    found = None if line is None else (line.epoch, line.loss)
    assert found == (None if expected is None else pytest.approx(expected, nan_ok=True))


@pytest.mark.parametrize(
    "text", ['{"epoch": "1", "loss": 1}', '{"epoch": true, "loss": 1}', '{"epoch": 1, "loss": "x"}']
)
def test_lines_that_are_mistakes(text):
    with pytest.raises(TrainingError, match="the command printed"):
        read_line(text)


@pytest.mark.parametrize(
    ("text", "error", "message", "reported"),
    [
        ("", TrainingError, "exited with 0 but printed no loss.*no other output", 0),
        ("echo rubbish; echo '{]'", TrainingError, "exited with 0 but printed no loss.*its last output: rubbish", 0),
        ("echo no such data >&2; exit 3", TrainingError, "exited with 3; its last output: no such data", 0),
        ("kill -9 $$", TrainingError, "was killed by SIGKILL", 0),
        ("kill -15 $$", Preempted, "pre-empted", 0),  # by whoever wants the machine
        ("exit 143", Preempted, "pre-empted", 0),
        ("exit 10", Diverged, "diverged", 0),
        ("exit 11", OutOfMemory, "ran out of memory", 0),
        ("exit 12", Preempted, "pre-empted", 0),
        ("""echo '{"epoch": 1, "loss": 1}'; exit 10""", Diverged, "diverged", 1),
        ("""echo '{"epoch": 1, "loss": 1}'; exit 1""", TrainingError, "exited with 1", 1),
        ("""echo '{"epoch": 1, "loss": 1}'; exit 12""", Preempted, "pre-empted", 0),  # it saved nothing
        (f"""echo '{{"epoch": 1, "loss": 1}}'; {SAVE}; exit 12""", Preempted, "pre-empted", 1),
        (f"""echo '{{"epoch": 1, "loss": 1}}'; {SAVE}""", TrainingError, "with 0 after epoch 1; expected epoch 3", 1),
        (f"""echo '{{"epoch": 0, "loss": 1}}'; {SAVE}""", TrainingError, "epoch 0 instead of 1.*FROM \\+ 1", 0),
        (f"""echo '{{"epoch": 2, "loss": 1}}'; {SAVE}""", TrainingError, "epoch 2 instead of 1", 0),
        (f"""echo '{{"epoch": 4, "loss": 1}}'; {SAVE}""", TrainingError, "epoch 4, after its last epoch", 0),
        (
            """for e in 1 2 3; do echo "{\\"epoch\\": $e, \\"loss\\": 1}"; done""",
            TrainingError,
            "saved nothing in",
            2,
        ),
    ],
)
def test_ways_to_end(tmp_path, text, error, message, reported):
    bench = Bench(tmp_path)
    with pytest.raises(error, match=message):
        bench.train(shell(tmp_path, text), [3])
    assert len(bench.reported) == reported


def test_a_loss_that_is_not_finite_ends_it(tmp_path):
    bench = Bench(tmp_path)
    bench.train(shell(tmp_path, """echo '{"epoch": 1, "loss": nan}'; sleep 10000"""), [1])  # it is not waited for
    assert math.isnan(bench.reported[0])


def test_no_such_command(tmp_path):
    with pytest.raises(TrainingError, match="'no-such-command-anywhere' is not found"):
        command(["no-such-command-anywhere"])
    with pytest.raises(TrainingError, match=r"'\./train\.sh' is not found"):
        command(["./train.sh"], tmp_path)
    (tmp_path / "train.sh").write_text("#!/bin/sh\n")
    with pytest.raises(TrainingError, match=r"is not executable: chmod \+x \./train\.sh"):
        command(["./train.sh"], tmp_path)
    with pytest.raises(TrainingError, match="the command is empty"):
        command([])
    wrong = script(tmp_path, "#!/no/such/interpreter\n", "wrong")
    with pytest.raises(TrainingError, match="cannot be run"):
        Bench(tmp_path).train(command([str(wrong)]), [1])


def test_a_training_that_hangs(tmp_path):
    script(tmp_path, f"#!/bin/sh\necho $$ > {tmp_path}/pid\nsleep 10000\n")
    with pytest.raises(TrainingError, match=r"longer than 2 s for one epoch: .*train.sh printed no loss"):
        Bench(tmp_path).train(command(["./train.sh"], tmp_path, epoch_limit=2.0), [1])
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_command_that_leaves_a_child_process_behind(tmp_path):
    text = f"""sleep 10000 & echo $! > {tmp_path}/child
echo '{{"epoch": 1, "loss": 1}}'
{SAVE}"""
    assert Bench(tmp_path).train(shell(tmp_path, text), [1]) == [1.0]  # the child is not waited for
    child = int((tmp_path / "child").read_text())
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


PATIENT = """
trap 'echo "$epoch" > "$FREEZETHAW_SAVE/value"; exit 12' TERM
epoch=$FREEZETHAW_FROM
while [ "$epoch" -lt "$FREEZETHAW_TO" ]; do
  epoch=$((epoch + 1))
  echo "{\\"epoch\\": $epoch, \\"loss\\": $epoch}"
  touch printed
  sleep 10000 &
  wait $!
done
"""


def test_asked_to_leave_it_saves_and_its_last_loss_is_kept(tmp_path):
    bench = Bench(tmp_path)
    bench.train(shell(tmp_path, PATIENT), [5], leaving=(tmp_path / "printed").exists)
    assert bench.reported == [1.0]
    assert (bench.saved / "value").read_text() == "1\n"


DILIGENT = """
trap 'asked=1' TERM
for epoch in 1 2 3 4 5; do
  echo "{\\"epoch\\": $epoch, \\"loss\\": $epoch}"
  [ -z "$asked" ] || { echo "$epoch" > "$FREEZETHAW_SAVE/value"; exit 12; }
  touch printed
  while [ -z "$asked" ]; do sleep 0.05; done
done
"""


def test_asked_to_leave_it_may_finish_its_epoch_first(tmp_path):
    bench = Bench(tmp_path)
    bench.train(shell(tmp_path, DILIGENT), [5], leaving=(tmp_path / "printed").exists)
    assert bench.reported == [1.0, 2.0]
    assert (bench.saved / "value").read_text() == "2\n"


SLOW = """
trap 'asked=1' TERM
echo '{"epoch": 1, "loss": 1}'; touch printed
i=0; while [ $i -lt WAIT ]; do sleep 1; i=$((i + 1)); done
echo '{"epoch": 2, "loss": 2}'; echo 2 > "$FREEZETHAW_SAVE/value"; exit 12
"""


@pytest.mark.slow
def test_asked_to_leave_it_has_as_long_as_its_epoch_takes(tmp_path):
    bench = Bench(tmp_path)
    trainer = shell(tmp_path, SLOW.replace("WAIT", "24"))  # longer than it was given before there was `grace`
    bench.train(trainer, [5], leaving=(tmp_path / "printed").exists)
    assert bench.reported == [1.0, 2.0]


def test_a_grace_period_ends_a_command_that_does_not_leave(tmp_path):
    started = time.monotonic()
    bench = Bench(tmp_path)
    trainer, limit = limited(shell(tmp_path, SLOW.replace("WAIT", "10000")), None, 3.0)
    assert limit is None
    with pytest.raises(Preempted):
        bench.train(trainer, [5], leaving=(tmp_path / "printed").exists)
    assert time.monotonic() - started > 2.0
    assert bench.reported == []


def test_asked_to_leave_without_saving_nothing_is_recorded_that_would_be_trained_again(tmp_path):
    bench = Bench(tmp_path)
    text = """echo '{"epoch": 1, "loss": 1}'; touch printed; sleep 10000"""
    with pytest.raises(Preempted):
        bench.train(shell(tmp_path, text), [5], leaving=(tmp_path / "printed").exists)
    assert bench.reported == []


def test_its_other_output_is_a_log(tmp_path, capsys):
    text = f"""echo hello; echo trouble >&2; printf '\\377\\n'; echo '{{"epoch": 1, "loss": 1}}'; {SAVE}"""
    Bench(tmp_path).train(shell(tmp_path, text), [1])
    found = capsys.readouterr()
    assert "hello" in found.out
    assert "epoch" not in found.out
    assert "trouble" in found.err
