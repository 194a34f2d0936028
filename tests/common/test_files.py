"""Files are written whole or not at all."""

from __future__ import annotations

import os
import stat

import numpy as np
import pytest

from moeplan.common.errors import BadInput
from moeplan.common.files import atomic_path, check_writable, fingerprint, read_text, require_file, write_text


def test_write_replaces_whole(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    write_text(path, "new é")
    assert read_text(path) == "new é"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def half() -> None:
        with atomic_path(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_written_files_follow_the_umask(tmp_path):
    path = tmp_path / "a.txt"
    before = os.umask(0o027)
    try:
        write_text(path, "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("act", [check_writable, lambda path: write_text(path, "x")])
def test_unwritable_places_say_so(tmp_path, act):
    with pytest.raises(BadInput, match="No such file or directory"):
        act(tmp_path / "missing" / "a.txt")
    with pytest.raises(BadInput, match="it is a folder"):
        act(tmp_path)


def test_check_writable_leaves_nothing(tmp_path):
    check_writable(tmp_path / "a.txt")
    assert os.listdir(tmp_path) == []


def test_reading_says_what_is_wrong(tmp_path):
    with pytest.raises(BadInput, match=r"plan '.*none' does not exist"):
        read_text(tmp_path / "none", "plan")
    (tmp_path / "binary").write_bytes(b"ab\xff")
    with pytest.raises(BadInput, match="not UTF-8"):
        read_text(tmp_path / "binary")


def test_fingerprint_follows_content_shape_and_type():
    array = np.arange(6, dtype=np.int32)
    assert fingerprint("a", array) == fingerprint("a", array.copy())
    others = [
        fingerprint("b", array),
        fingerprint("a", array.reshape(2, 3)),
        fingerprint("a", array.astype(np.int64)),
        fingerprint("a", np.arange(1, 7, dtype=np.int32)),
        fingerprint(array, "a"),
    ]
    assert len({fingerprint("a", array), *others}) == 6


def test_links_are_followed_and_devices_refused(tmp_path):
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(target)
    write_text(link, "x")
    assert link.is_symlink()
    assert target.read_text() == "x"
    os.mkfifo(pipe)
    with pytest.raises(BadInput, match="not a regular file"):
        check_writable(pipe)


def test_the_longest_name_can_be_written(tmp_path):
    write_text(tmp_path / ("a" * 255), "x")
    assert os.listdir(tmp_path) == ["a" * 255]


@pytest.mark.parametrize("read", [read_text, require_file])
def test_only_regular_files_are_opened(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")  # to open it would wait for a writer for ever
    for path, words in (
        (tmp_path / "pipe", "is no regular file: it is a pipe, socket or device"),
        ("/dev/null", "is no regular file: it is a pipe, socket or device"),
        (tmp_path, "is no regular file: it is a folder"),
        (tmp_path / "none", "does not exist"),
        ("a\0b", "cannot read"),
    ):
        with pytest.raises(BadInput, match=words) as caught:
            read(path, "plan")
        assert caught.value.fix
