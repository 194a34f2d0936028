"""No pickle without the guard: with torch by its weights-only loader, without torch not at all."""

import importlib.util
import os
import pickle
import sys
import types
import zipfile

import numpy as np
import pytest

from moeplan.common.errors import BadInput, MissingLibrary
from moeplan.workload.readers.torch_file import load_torch_file

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed (extra 'torch')"
)


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def traps(tmp_path):
    """A bare pickle, and one inside the zip that torch.save writes."""
    content = pickle.dumps({"logical_count": Trap(tmp_path / "sprung")})
    (tmp_path / "bare.pt").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "zipped.pt", "w") as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")
    return [tmp_path / "bare.pt", tmp_path / "zipped.pt"]


def test_the_trap_works(tmp_path):
    pickle.loads(traps(tmp_path)[0].read_bytes())  # or the tests below prove nothing
    assert (tmp_path / "sprung").exists()


def test_without_torch_nothing_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for path in traps(tmp_path):
        with pytest.raises(MissingLibrary, match="needs torch") as error:
            load_torch_file(path)
        assert error.value.exit_code == 6
        assert not (tmp_path / "sprung").exists()


def test_a_torch_with_a_broken_guard_is_refused(tmp_path, monkeypatch):
    old = types.ModuleType("torch")
    old.__version__ = "2.5.1+cpu"
    monkeypatch.setitem(sys.modules, "torch", old)
    with pytest.raises(MissingLibrary, match=r"2\.6 or newer"):
        load_torch_file(traps(tmp_path)[0])


def test_missing_files(tmp_path):
    with pytest.raises(BadInput, match="does not exist"):
        load_torch_file(tmp_path / "absent.pt")


@needs_torch
def test_malicious_pickles_are_refused(tmp_path):
    for path in traps(tmp_path):
        with pytest.raises(BadInput, match="holds more than tensors and plain values") as error:
            load_torch_file(path)
        assert str(path) in str(error.value)
        assert not (tmp_path / "sprung").exists()


@needs_torch
def test_plain_values_and_tensors(tmp_path):
    import torch

    saved = {"rank": 0, "rate": None, "counts": torch.arange(6, dtype=torch.int32).reshape(2, 3)}
    saved["records"] = [{"id": 1, "half": torch.ones(2, dtype=torch.bfloat16)}]
    torch.save(saved, tmp_path / "a.pt")
    read = load_torch_file(tmp_path / "a.pt")
    assert read["rank"] == 0
    assert read["rate"] is None
    assert read["counts"].dtype == np.int32
    assert read["counts"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert read["records"][0]["half"].tolist() == [1.0, 1.0]


@needs_torch
def test_damage(tmp_path):
    import torch

    torch.save({"a": torch.ones(1000)}, tmp_path / "a.pt")
    whole = (tmp_path / "a.pt").read_bytes()
    for name, content in {"cut.pt": whole[:700], "empty.pt": b"", "text.pt": b"hello"}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BadInput):
            load_torch_file(tmp_path / name)
