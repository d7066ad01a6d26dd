"""Seeds: of the commit, of the environment, and told so that they can be had again."""

import pytest

from tests.harness import seeds


@pytest.fixture(autouse=True)
def _anew(monkeypatch):
    """Nothing said, and the commit not looked up yet."""
    for variable in (seeds.FAULTS, seeds.POLLER):
        monkeypatch.delenv(variable, raising=False)
    seeds.of_commit.cache_clear()
    yield
    seeds.of_commit.cache_clear()


def test_the_commit_is_the_seed_unless_the_environment_says(monkeypatch):
    """It is the same all day, and what was printed can be had again."""
    of_commit = seeds.seed(seeds.FAULTS)
    assert of_commit == seeds.seed(seeds.POLLER)

    monkeypatch.setenv(seeds.FAULTS, "4711")

    assert 4711 == seeds.seed(seeds.FAULTS)
    assert f"seeds: {seeds.FAULTS}=4711 {seeds.POLLER}={of_commit}" == seeds.line()


def test_without_git_the_seed_is_always_the_same(monkeypatch):
    """As in sources that were unpacked."""
    monkeypatch.setenv("PATH", "/nowhere")

    assert seeds.WITHOUT_GIT == seeds.seed(seeds.FAULTS)


def test_a_failure_says_how_to_have_it_again(monkeypatch):
    """The command names the variable, the seed and the test."""
    monkeypatch.setenv(seeds.FAULTS, "4711")

    assert (
        f"{seeds.FAULTS}=4711 python -m pytest 'tests/test_x.py::test_y[K1]'"
    ) == seeds.again(seeds.FAULTS, "tests/test_x.py::test_y[K1]")
