"""A load: a level or a rate, told and sorted alike wherever it goes."""

from __future__ import annotations

import pickle

import pytest

from tuner.domain.load import LoadPoint
from tuner.domain.measurement import Metric, MetricAt
from tuner.domain.workload import Workload


def test_a_load_is_exactly_one_of_level_and_rate() -> None:
    for both_or_none in ({}, {"level": 1, "rate": 1.0}):
        with pytest.raises(ValueError, match="either a level or a rate"):
            LoadPoint(**both_or_none)  # type: ignore[arg-type]


@pytest.mark.parametrize("fields", [{"level": 0}, {"level": -1}, {"rate": 0.0}, {"rate": -2.0}])
def test_nothing_is_no_load(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="above zero"):
        LoadPoint(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("load", "words", "label", "slug"),
    [
        (LoadPoint(level=8), "C=8", "8", "c8"),
        (LoadPoint(rate=5), "5 req/s", "5/s", "rate5"),
        (LoadPoint(rate=2.5), "2.5 req/s", "2.5/s", "rate2.5"),
        (LoadPoint(rate=1234567.5), "1234567.5 req/s", "1234567.5/s", "rate1234567.5"),
    ],
)
def test_a_load_has_words_for_people_and_names_for_files(load: LoadPoint, words: str, label: str, slug: str) -> None:
    assert (str(load), load.label, load.slug) == (words, label, slug)


def test_documents_have_both_keys_of_which_one_is_null() -> None:
    assert LoadPoint(level=8).document == {"level": 8, "rate": None}
    assert LoadPoint(rate=5).document == {"level": None, "rate": 5}


def test_levels_sort_by_number_then_rates_as_a_workload_measures_them() -> None:
    measured = Workload(levels=(1, 8, 128), rates=(0.5, 2)).loads
    assert sorted((measured[3], measured[1], measured[4], measured[0], measured[2])) == list(measured)
    assert LoadPoint(level=128) < LoadPoint(rate=0.5) <= LoadPoint(rate=0.5)


def test_the_same_rate_is_the_same_load_however_it_was_written() -> None:
    assert LoadPoint(rate=5) == LoadPoint(rate=5.0)
    assert len({LoadPoint(rate=5), LoadPoint(rate=5.0), LoadPoint(level=5)}) == 2
    assert pickle.loads(pickle.dumps(LoadPoint(rate=5))) == LoadPoint(rate=5)


def test_a_metric_at_a_load_has_a_label_and_words() -> None:
    at = MetricAt(Metric.TTFT_P99_MS, LoadPoint(rate=5))
    assert (at.label, at.words, str(at)) == (
        "ttft_p99_ms@5/s",
        "time to first token (p99) at 5 req/s",
        "ttft_p99_ms at 5 req/s",
    )
