"""A work folder keeps whole pieces, refuses other inputs and other processes, and survives being killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from moeplan.common import files
from moeplan.common.checkpoint import open_work
from moeplan.common.errors import BadInput

INPUTS = {"model": "sha256:1", "seed": "0"}
HOLD = (
    "import sys, time; from pathlib import Path; from moeplan.common.checkpoint import open_work\n"
    "with open_work(Path(sys.argv[1]), {'model': 'sha256:1', 'seed': '0'}) as work:\n"
    "    work.keep('layer-3', 'whole'); print('held', flush=True); time.sleep(60)\n"
)


def test_pieces_come_back(tmp_path):
    with open_work(tmp_path / "work", INPUTS) as work:
        assert work.read("layer-0") is None
        work.keep("layer-0", '{"a": 1}')
    with open_work(tmp_path / "work", INPUTS) as work:
        assert work.read("layer-0") == '{"a": 1}'
        work.discard()
    assert not (tmp_path / "work").exists()


def test_a_job_that_finishes_nothing_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), open_work(tmp_path / "work", INPUTS):
        raise KeyboardInterrupt
    assert not (tmp_path / "work").exists()
    (tmp_path / "mine").mkdir()
    with open_work(tmp_path / "mine", INPUTS):
        pass
    assert (tmp_path / "mine").is_dir()  # it was there before


def test_other_inputs_are_refused_by_name(tmp_path):
    with open_work(tmp_path, INPUTS) as work:
        work.keep("layer-0", "x")
    with (
        pytest.raises(BadInput, match="other inputs") as refused,
        open_work(tmp_path, {**INPUTS, "seed": "1"}),
    ):
        pass
    assert refused.value.where == "seed: then 0, now 1"
    with open_work(tmp_path, {"seed": "1"}, fresh=True) as work:
        assert work.read("layer-0") is None


def test_a_folder_of_someone_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(BadInput, match="no work folder") as refused, open_work(tmp_path, INPUTS):
        pass
    assert "thesis.tex" in refused.value.where
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_two_processes_exclude_each_other_and_a_killed_one_lets_go(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BadInput, match="another process") as refused, open_work(tmp_path, INPUTS):
            pass
        assert str(holder.pid) in refused.value.where
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    for _ in range(100):  # the kernel lets go of the lock when it has buried the process
        try:
            with open_work(tmp_path, INPUTS) as work:
                assert work.read("layer-3") == "whole"
            break
        except BadInput:
            time.sleep(0.05)
    else:
        pytest.fail("the lock of a killed process was never released")


def test_a_full_disk_loses_nothing_that_was_written(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with open_work(tmp_path, INPUTS) as work:
        work.keep("layer-0", "first")
        monkeypatch.setattr(files.os, "replace", full)
        with pytest.raises(BadInput, match="No space left"):
            work.keep("layer-0", "second")
        with pytest.raises(BadInput, match="No space left"):
            work.keep("layer-1", "second")
        monkeypatch.undo()
        assert work.read("layer-0") == "first"
        assert work.read("layer-1") is None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["inputs.json", "layer-0.json", "lock"]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format": "other", "inputs": {}}', '{"format": "moeplan.work"}']
)
def test_a_damaged_description_is_named(tmp_path, text):
    (tmp_path / "inputs.json").write_text(text)
    with pytest.raises(BadInput, match="--fresh"), open_work(tmp_path, INPUTS):
        pass


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "work").write_text("")
    with pytest.raises(BadInput, match="--work"), open_work(tmp_path / "work", INPUTS):
        pass
