"""The border: every faulty key is named, with its path and a hint."""

from __future__ import annotations

import pytest

from moeplan.common.errors import BadInput
from moeplan.common.spec import Spec, parse, read_mapping


class Inner(Spec):
    rate: float
    count: int = 1


class Outer(Spec):
    name: str
    inner: Inner | None = None


def test_unknown_keys_get_a_hint_from_their_own_section():
    with pytest.raises(BadInput, match=r"file x: inner\.raet: unknown key; did you mean 'rate'\?"):
        parse(Outer, {"name": "n", "inner": {"rate": 1.0, "raet": 2.0}}, "file x")


def test_all_faults_are_listed_at_once():
    with pytest.raises(BadInput) as caught:
        parse(Outer, {"inner": {"rate": "fast"}}, "file x")
    assert "2 values are wrong" in str(caught.value)
    assert "name: Field required" in str(caught.value)
    assert "inner.rate" in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_must_be_finite(value):
    with pytest.raises(BadInput, match="finite"):
        parse(Inner, {"rate": value}, "file x")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "a: [1", "is not YAML"),
        ("a.yaml", "- 1\n- 2", "must be a mapping"),
        ("a.yaml", "", "must be a mapping"),
        ("a.json", '{"a": }', "is not JSON"),
    ],
)
def test_files_that_are_no_mapping(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=message):
        read_mapping(tmp_path / name, "platform")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x [1, 2]\nb: *x", "aliases are not allowed"),
        ("a: 1\na: 2", "key 'a' is given twice"),
        ("a: 2024-13-45", "cannot be read"),
        ("a: " + "[" * 5000, "cannot be read"),
    ],
)
def test_yaml_that_would_hurt(tmp_path, text, message):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(BadInput, match=message):
        read_mapping(tmp_path / "a.yaml", "platform")
