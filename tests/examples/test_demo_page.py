"""The demo page: its numbers against the Python kernels, its markup, its first picture."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from _support.browser import chromium
from _support.paths import REPOSITORY
from _support.waiting import wait_until
from scipy import special, stats

import lm_eval_bayes as leb
from lm_eval_bayes._util.text import format_percent
from lm_eval_bayes.stats.intervals import beta_ends
from lm_eval_bayes.stats.simulation import mimics_with_means

NODE = shutil.which("node")
DEMO = REPOSITORY / "examples" / "demo"
START = re.compile(r'(<script type="application/json" id="start">)(.*?)(</script>)', re.DOTALL)
KERNELS = re.compile(r'<script id="kernels">(.*?)</script>', re.DOTALL)

#: Runs calls [name, argument, …] that come in as JSON. NaN and infinities travel as null.
ASK = """
const lmeb = { ...require(process.argv[2]), ...require(process.argv[3]) };
const calls = JSON.parse(require("fs").readFileSync(0, "utf-8"));
console.log(JSON.stringify(calls.map(([name, ...given]) => lmeb[name](...given))));
"""


def demo_page(**settings):
    """Return the page as the script writes it, with other settings at its opening."""
    page = runpy.run_path(str(DEMO / "write_page.py"))["page"]()
    return START.sub(
        lambda match: match[1] + json.dumps({**json.loads(match[2]), **settings}) + match[3], page
    )


# -- the page's functions beside the Python kernels ----------------------------------------------


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Call functions of the script that stands in the page."""
    if NODE is None:
        pytest.skip("node is not on PATH")
    folder = tmp_path_factory.mktemp("page")
    (script,) = KERNELS.findall(demo_page())
    (folder / "kernels.js").write_text(script, encoding="utf-8")
    shutil.copy(DEMO / "drawings.js", folder)
    (folder / "ask.js").write_text(ASK, encoding="utf-8")

    def call(calls):
        done = subprocess.run(
            [NODE, folder / "ask.js", folder / "kernels.js", folder / "drawings.js"],
            input=json.dumps(calls),
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return call


def random_counts(n_cases, seed):
    """Right answers and trials a question: few and many, equal and unequal, hard and easy."""
    rng = np.random.default_rng(seed)
    for case in range(n_cases):
        m = int(rng.integers(1, 60))
        n = np.full(m, rng.integers(1, 129))
        if case % 3 == 0:
            n = rng.integers(1, 40, m)
        a, b = rng.uniform(0.05, 4, 2)
        yield rng.binomial(n, rng.beta(a, b, m)), n


def outcomes(right, total):
    return leb.Outcomes.from_counts(np.stack([total - right, right], axis=1))


def test_means_and_sds_are_those_of_the_kernels(ask):
    cases = list(random_counts(40, seed=1))
    calls, expected = [], []
    for right, total in cases:
        given = outcomes(right, total)
        for pseudo in (1.0, 0.5):
            calls.append(["bayesAtN", right.tolist(), total.tolist(), pseudo])
            posterior = leb.bayes_at_n(given, prior=pseudo)
            expected.append({"mu": posterior.mu, "sigma": posterior.sigma})
        calls.append(["avgAtN", right.tolist(), total.tolist()])
        average = leb.avg_at_n(given)
        expected.append({"value": average.value, "sigma": average.sigma})
    for result, right in zip(ask(calls), expected, strict=True):
        assert result == pytest.approx(right, rel=0, abs=1e-12)


def test_pass_at_k(ask):
    calls, expected = [], []
    for right, total in random_counts(40, seed=2):
        smallest = int(total.min())
        for k in {1, (smallest + 1) // 2, smallest, smallest + 1}:
            calls.append(["passAtK", right.tolist(), total.tolist(), k])
            value = leb.pass_at_k(outcomes(right, total), k).value if k <= smallest else None
            expected.append(value)
    for result, right in zip(ask(calls), expected, strict=True):
        assert result == (None if right is None else pytest.approx(right, rel=0, abs=1e-12))


def test_intervals_are_the_beta_intervals(ask):
    calls, expected = [], []
    for level in (0.5, 0.95, 0.999):
        for right, total in random_counts(30, seed=3):
            posterior = leb.bayes_at_n(outcomes(right, total))
            interval = posterior.interval(level, "beta")
            calls.append(["betaInterval", posterior.mu, posterior.sigma, level])
            expected.append({"low": interval.low, "high": interval.high})
    # as good as certain, certain, and more spread than any Beta has
    for mu, sigma in ((0.3, 1e-8), (0.999, 1e-5), (0.2, 0.0), (0.99, 0.2), (0.5, 0.499)):
        low, high = mu, mu
        if sigma > 0.0:
            low, high = beta_ends(mu, sigma, (0.0, 1.0), 0.95)
        calls.append(["betaInterval", mu, sigma, 0.95])
        expected.append({"low": low, "high": high})
    for result, right in zip(ask(calls), expected, strict=True):
        assert result == pytest.approx(right, rel=0, abs=1e-9)


def test_quantiles_of_any_beta(ask):
    rng = np.random.default_rng(4)
    a, b = 10 ** rng.uniform(-2, 5, (2, 300))
    u = np.concatenate([rng.random(200), 10 ** rng.uniform(-8, -1, 100)])
    result = np.array(ask([["betaQuantile", *item] for item in zip(a, b, u, strict=True)]))
    np.testing.assert_allclose(result, stats.beta.ppf(u, a, b), rtol=0, atol=1e-12)
    # the relative error counts where no neighbouring float could be meant
    inside = (result > 1e-300) & (result < 1 - 1e-4)
    assert inside.sum() > 150
    np.testing.assert_allclose(special.betainc(a, b, result)[inside], u[inside], rtol=1e-9)


def test_the_normal_distribution(ask):
    z = np.concatenate([np.linspace(-9, 9, 181), [2.5 * 2**0.5, -2.5 * 2**0.5]])
    result = ask([["normalCdf", value] for value in z])
    np.testing.assert_allclose(result, special.ndtr(z), rtol=1e-11, atol=1e-15)
    levels = [0.5, 0.9, 0.95, 0.975, 0.9995]
    result = ask([["normalQuantile", p] for p in levels])
    np.testing.assert_allclose(result, special.ndtri(levels), rtol=0, atol=1e-12)


def test_probabilities_are_written_as_everywhere(ask):
    grid = [*np.linspace(0, 1, 201), 0.9996, 1 - 1e-9, 1e-9, 0.01, 0.99, 0.995, 0.004, 0.125]
    texts = ask([["probability", p] for p in grid])
    assert texts == [f"{format_percent(p)}%" for p in grid]
    assert texts[201:204] == [">99%", ">99%", "<1%"]


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 3, 8])
def test_ranks_are_those_of_simultaneous_comparisons(ask, n):
    rng = np.random.default_rng(5)
    calls, rankings = [], []
    for case in range(20):
        prior = leb.hbayes_at_n if case % 2 else leb.bayes_at_n
        right = rng.binomial(n, rng.uniform(0.05, 0.95, (6, 1)), (6, 40))
        posteriors = {f"m{i}": prior(outcomes(row, np.full(40, n))) for i, row in enumerate(right)}
        models = [{"mu": item.mu, "sigma": item.sigma} for item in posteriors.values()]
        averages = right.tolist() if n == 1 and case % 2 else None
        calls.append(["simultaneousRanks", models, 40 * (n - 1), averages, 0.95])
        rankings.append((list(posteriors), leb.rank(posteriors, draws=1000)))
    compared = 0
    for result, (names, ranking) in zip(ask(calls), rankings, strict=True):
        critical = ranking.simultaneous.critical_value
        assert result["critical"] == pytest.approx(critical, rel=0.05)
        z = np.abs(ranking.simultaneous.z[np.triu_indices(6, 1)])
        # both critical values are simulated
        if np.all(np.abs(z / critical - 1.0) > 0.1):
            compared += 1
            assert result["ranks"] == [ranking.rank_of(name) for name in names]
    assert compared >= 5


def test_tau_and_separations(ask):
    rng = np.random.default_rng(5)
    calls, expected = [], []
    for _ in range(20):
        x, y = rng.integers(0, 5, (2, 7))
        calls.append(["kendallTauB", x.tolist(), y.tolist()])
        expected.append(pytest.approx(float(leb.kendall_tau_b(x, y)), abs=1e-12))
    assert ask(calls) == expected
    (apart,) = ask([["separation", {"mu": 0.5, "sigma": 0.03}, {"mu": 0.4, "sigma": 0.04}]])
    assert apart == pytest.approx({"z": 2.0, "rho": special.ndtr(2.0)}, abs=1e-12)


def test_the_learned_prior(ask):
    cases = [
        *random_counts(60, seed=6),
        (np.zeros(30, dtype=int), np.full(30, 4)),
        (np.full(10, 64), np.full(10, 64)),
        (np.repeat([0, 16], 15), np.full(30, 16)),
        (np.array([3]), np.array([5])),
        (np.repeat([20, 21], 50), np.full(100, 40)),
    ]
    result = ask([["hbayesAtN", right.tolist(), total.tolist()] for right, total in cases])
    for (right, total), item in zip(cases, result, strict=True):
        posterior = leb.hbayes_at_n(outcomes(right, total))
        ours = {"mu": item["mu"], "sigma": item["sigma"], "mean": item["mean"]}
        expected = {
            "mu": posterior.mu,
            "sigma": posterior.sigma,
            "mean": float(posterior.learned.mean[1]),
        }
        # the page's model has one kind of questions
        assert ours == pytest.approx(expected, rel=0, abs=0.05)
        ends = posterior.interval(0.95, "beta")
        low, high = beta_ends(item["mu"], item["sigma"], (0.0, 1.0), 0.95)
        assert (low, high) == pytest.approx((ends.low, ends.high), rel=0, abs=0.05)


def test_made_up_models_have_the_scores_they_are_said_to_have(ask):
    calls, expected = [], []
    for mean, m, strength in ((0.15, 30, 0.8), (0.03, 100, 0.1), (0.9, 5, 100.0), (0.5, 31, 1.0)):
        calls.append(["mimic", mean, m, strength])
        expected.append(mimics_with_means([mean], m, strength=strength)[0])
    calls.append(["truePassAtK", expected[0].tolist(), 4])
    *result, true_pass = ask(calls)
    for ours, theirs in zip(result, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)
    assert true_pass == pytest.approx(float(np.mean(1 - (1 - expected[0]) ** 4)), abs=1e-12)


def test_tosses_are_fair_and_independent(ask):
    shape = (6, 40, 60)
    calls = [["toss", 7, *where] for where in np.ndindex(shape)]
    u = np.array(ask(calls)).reshape(shape)
    assert stats.kstest(u.ravel(), "uniform").pvalue > 0.01
    for axis in range(3):
        neighbours = np.moveaxis(u, axis, 0)
        r = np.corrcoef(neighbours[:-1].ravel(), neighbours[1:].ravel())[0, 1]
        assert abs(r) < 4 / np.sqrt(u.size)
    # sums over a row vary as those of independent numbers do
    for axis in (1, 2):
        sums = u.sum(axis=axis)
        ratio = sums.var() / (u.shape[axis] / 12)
        assert 0.6 < ratio < 1.5
    other = np.array(ask([["toss", 8, *where] for where in np.ndindex(shape)])).reshape(shape)
    assert abs(np.corrcoef(u.ravel(), other.ravel())[0, 1]) < 4 / np.sqrt(u.size)


def test_counts_only_grow_by_what_a_trial_brings(ask):
    (counts,) = ask([["runningCounts", [0.0, 0.5, 1.0], 64, 3, 0]])
    steps = np.diff(counts, axis=0)
    assert set(np.unique(steps)) == {0, 1}
    assert counts[-1][0] == 0
    assert 16 <= counts[-1][1] <= 48
    assert counts[-1][2] == 64


# -- the markup ------------------------------------------------------------------------------------


class Markup(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.labelled, self.controls, self.ids = [], set(), [], []
        self._open = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        result = dict(attrs)
        self.tags.append((tag, result))
        if "id" in result:
            self.ids.append(result["id"])
        if tag == "label" and "for" in result:
            self.labelled.add(result["for"])
        if tag in ("input", "select"):
            self.controls.append((result, "label" in self._open))
        if tag not in ("input", "meta", "br"):
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag


def test_the_page_is_one_file_that_asks_for_nothing():
    text = demo_page()
    markup = Markup(text)
    assert not markup._open
    for _, attributes in markup.tags:
        assert not attributes.keys() & {"src", "href", "action", "srcset", "data", "style"}
        assert not any(name.startswith("on") for name in attributes)
    assert set(re.findall(r"\w+://[^\"' ]*", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket|sendBeacon|eval\(", text)
    assert "default-src 'none'" in text
    assert "@@" not in text
    assert len(text) < 100_000


def test_every_control_has_a_name_and_every_id_is_its_own():
    markup = Markup(demo_page())
    assert len(markup.controls) == 13
    for attributes, inside in markup.controls:
        assert inside or attributes["id"] in markup.labelled
    assert len(set(markup.ids)) == len(markup.ids)
    for tag, attributes in markup.tags:
        for reference in (attributes.get("aria-labelledby"), attributes.get("for")):
            assert reference is None or reference in markup.ids, (tag, reference)


def test_every_file_of_the_page_is_part_of_it():
    text = demo_page()
    files = {file.name: file for file in DEMO.iterdir() if file.suffix in (".js", ".css")}
    assert files.keys() == {"page.css", "special.js", "kernels.js", "drawings.js", "page.js"}
    for file in files.values():
        assert file.read_text(encoding="utf-8").strip() in text


# -- in a browser ----------------------------------------------------------------------------------


#: Plays with every control, then leaves what is left in the title.
PLAYED = """
<script>
const told = [];
window.addEventListener("error", (event) => told.push(event.message));
const fire = (id, value, kind = "input") => {
  const one = document.getElementById(id);
  one.value = value;
  one.dispatchEvent(new Event(kind));
};
for (const [id, values] of Object.entries({
  models: [2, 8, 6], gap: [0, 0.1, 0.03], questions: [5, 100, 30], mean: [0.03, 0.97, 0.15],
  spread: [-1, 2, -0.1], k: [32, 1, 4], trials: [1, 2, 128, 16],
})) for (const value of values) fire(id, value);
for (const value of ["0.9,0", "0.1,-0.3", ""]) fire("preset", value, "change");
for (const value of ["0.5", "0.99", "0.95"]) fire("level", value, "change");
for (const choice of document.getElementsByName("prior")) choice.click();
for (const value of ["0", "5", "2"]) fire("shown", value, "change");
for (const id of ["again", "play", "play", "repeat"]) document.getElementById(id).click();
const ended = setInterval(() => {
  if (!document.querySelector("#often svg")) return;
  clearInterval(ended);
  document.title = JSON.stringify(told);
}, 20);
</script>
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


def opened(browser, text, folder, condition):
    """Return the document once a condition holds, and what the console heard."""
    file = folder / "page.html"
    file.write_text(text, encoding="utf-8")
    browser.get_log("browser")
    browser.get(file.as_uri())
    wait_until(lambda: browser.execute_script(f"return {condition}"))
    return browser.page_source, browser.get_log("browser")


PICTURES = "document.querySelectorAll('[role=img]').length >= 5"


def test_the_page_in_chromium_shows_the_kernels_numbers(ask, browser, tmp_path):
    settings = {"models": 4, "questions": 20, "mean": 0.4, "gap": 0.05, "spread": 0.0}
    page = demo_page(**settings, prior="uniform")
    document, heard = opened(browser, page, tmp_path, PICTURES)
    assert heard == []
    means = [0.475, 0.425, 0.375, 0.325]
    p = mimics_with_means(means, 20, strength=1.0)
    u = np.array(ask([["toss", 1, *w, n] for w in np.ndindex(4, 20) for n in range(1, 9)]))
    right = (u.reshape(4, 20, 8) < p[:, :, None]).sum(axis=2)
    rows = re.findall(r"<tr>(.*?)</tr>", document[document.index("<tbody>") :])
    cells = {row[1]: row for row in (re.findall(r"<t[dh].*?>(.*?)</t[dh]>", r) for r in rows)}
    assert len(cells) == 4
    for model, name in enumerate("ABCD"):
        posterior = leb.bayes_at_n(outcomes(right[model], np.full(20, 8)))
        interval = posterior.interval(0.95, "beta")
        row = cells[name]
        assert row[2] == f"{100 * means[model]:.1f}%"
        assert row[3] == f"{100 * posterior.mu:.1f}% ± {100 * posterior.sigma:.1f}"
        assert row[4] == f"{100 * interval.low:.1f}% to {100 * interval.high:.1f}%"
        assert row[5] == ("yes" if interval.low <= means[model] <= interval.high else "no")
        assert float(row[6].rstrip("%")) == pytest.approx(100 * right[model].mean() / 8, abs=0.051)
    pictures = re.findall(r'<svg [^>]*role="img" aria-label="([^"]+)"', document)
    assert len(pictures) == 5
    assert all(len(message) > 40 for message in pictures)


def test_the_page_opens_on_learned_intervals_that_cover_beside_uniform_ones(browser, tmp_path):
    document, _ = opened(browser, demo_page(), tmp_path, PICTURES)
    status = re.search(r'id="status"[^>]*>([^<]*)<', document)[1]
    assert status.startswith(
        "After 8 trials per question the 95% intervals of the learned prior cover 5 of 5 true "
        "scores, those of the uniform prior 0."
    )
    first = re.search(r'role="img" aria-label="(Posterior mean[^"]+)"', document)[1]
    assert first.count("with the other prior") == 5


def test_all_controls_work_in_chromium_without_an_error(browser, tmp_path):
    text = demo_page().replace("</body>", PLAYED + "</body>")
    document, heard = opened(browser, text, tmp_path, "document.title.startsWith('[')")
    assert heard == []
    assert "<title>[]</title>" in document
    message = re.search(r'id="repeat-status"[^>]*>([^<]*)<', document)[1]
    share = {name: int(value) for name, value in re.findall(r"(\w+) (\d+)%", message)}
    # a hard benchmark, 16 trials: the uniform prior misses, the learned one holds what it says
    assert share["uniform"] < 50
    assert share["learned"] > 88
