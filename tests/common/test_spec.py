"""The border: every faulty key is named, with its path and a hint."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from moeplan.common.errors import BadInput
from moeplan.common.spec import Spec, parse, read_mapping, whole, within


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
        ("a.yaml", "", "is empty"),
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


class Ranged(Spec):
    count: Annotated[int, whole(1, 10)] = 1
    share: Annotated[float, within(0.5, 2.0)] = 1.0
    ids: list[int] | None = None
    rates: dict[str, float] | None = None
    on: bool = False
    either: float | str = 0.0


class Sections(Spec):
    one: Ranged = Ranged()
    more: list[Ranged] | None = None
    open: dict[str, Any] | None = None


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"count": 0}, "one.count: must be a whole number from 1 to 10 (got 0)"),
        ({"count": 11.0}, "one.count: must be a whole number from 1 to 10 (got 11.0)"),
        ({"count": 10**30}, "one.count: must be a whole number from 1 to 10 (got 1"),
        ({"count": 1 << 20_000}, "one.count: must be a whole number from 1 to 10 (got a number of thousands"),
        ({"count": 1e300}, "one.count: must be a whole number from 1 to 10 (got 1e+300)"),
        ({"count": 2.5}, "one.count: Input should be a valid integer"),
        ({"share": 0.49}, "one.share: must be from 0.5 to 2 (got 0.49)"),
    ],
)
def test_numbers_out_of_range_are_named_with_the_range(values, named):
    with pytest.raises(BadInput) as caught:
        parse(Sections, {"one": values}, "file x")
    assert f"file x: {named}" in caught.value.what
    assert len(caught.value.what) < 200


def test_ends_of_a_range_belong_to_it():
    for count, share in ((1, 0.5), (10, 2.0)):
        assert parse(Ranged, {"count": count, "share": share}, "file x") == Ranged(count=count, share=share)


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"one": {"count": True}}, "one.count"),
        ({"one": {"share": True}}, "one.share"),
        ({"one": {"ids": [3, True]}}, "one.ids.1"),
        ({"one": {"rates": {"fp8": True}}}, "one.rates.fp8"),
        ({"more": [{}, {"count": True}]}, "more.1.count"),
    ],
)
def test_true_is_no_number(data, path):
    with pytest.raises(BadInput) as caught:
        parse(Sections, data, "file x")
    assert caught.value.what == f"file x: {path}: must be a number (got True)"


def test_true_stays_where_it_is_meant():
    data = {"one": {"on": True, "either": True}, "open": {"count": True}}
    parsed = parse(Sections, data, "file x")
    assert (parsed.one.on, parsed.open) == (True, {"count": True})


def test_unknown_keys_in_a_list_of_sections_get_a_hint():
    with pytest.raises(BadInput, match=r"more\.0\.cuont: unknown key; did you mean 'count'\?"):
        parse(Sections, {"more": [{"cuont": 1}]}, "file x")


@pytest.mark.parametrize(("name", "text"), [("a.yaml", " \n"), ("a.yaml", "# nothing\n"), ("a.json", "")])
def test_empty_files_are_called_empty(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match="is empty") as caught:
        read_mapping(tmp_path / name, "plan")
    assert caught.value.fix
