"""The report in a real browser: no error, no request, nothing injected, usable at any width."""

from __future__ import annotations

import json

import numpy as np
import pytest
from _support.browser import chromium
from _support.paths import REPOSITORY
from _support.saved_runs import question, write_run
from _support.waiting import PATIENCE_S, wait_until

from lm_eval_bayes.analysis.report_data import report_data
from lm_eval_bayes.report.page.render import render
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.task_run import Provenance, SavedRuns, TaskRun

HOSTILE = (
    "</title></script><script>window.injected=1</script><img src=x onerror=window.injected=2>"
    "<svg onload=window.injected=3>\"' onfocus=window.injected=4 \u202e\x00{{ 7*7 }}"
)


def runs():
    rng = np.random.default_rng(1)
    found = []
    for task in ("first", HOSTILE):
        for i in range(5):
            name = f"laboratory/model-with-a-rather-long-name-{i}" if i else HOSTILE
            p = np.clip(np.linspace(0, 1, 12) + 0.1 * (i - 2), 0.02, 0.98)
            found.append(
                TaskRun.from_trials(
                    name,
                    task,
                    [(rng.random(8) < one).astype(int) for one in p],
                    [f"{task}{q}" for q in range(12)],
                    questions=(HOSTILE * 3, "سؤال: ما هو 2 + 2؟", *["x" * 3000] * 10),
                    measured={"completion_tokens": (np.full(8, 90.0 + 40 * i),) * 12},
                    provenance=Provenance(model_args={HOSTILE: HOSTILE}, config={"x": "y" * 9000}),
                    notes=(HOSTILE, "n" * 400),
                )
            )
    return SavedRuns(tuple(found))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_bytes(render(report_data(runs()), now=1.7e9).encode("utf-8"))
    return file.as_uri()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


def opened(browser, page, width=1600, dark=False, scripts=True):
    """Open a page as on a screen of this width; return what was requested meanwhile."""
    told = browser.execute_cdp_cmd
    told(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    # a smooth scroll would still be under way when something is clicked
    still = {"name": "prefers-reduced-motion", "value": "reduce"}
    told("Emulation.setEmulatedMedia", {"features": [scheme, still]})
    told("Emulation.setScriptExecutionDisabled", {"value": not scripts})
    browser.get_log("performance")
    browser.get(page)
    events = [json.loads(one["message"])["message"] for one in browser.get_log("performance")]
    sent = [one for one in events if one["method"] == "Network.requestWillBeSent"]
    return [one["params"]["request"]["url"] for one in sent]


def ask(browser, script, *arguments):
    return browser.execute_script(f"return {script}", *arguments)


@pytest.mark.parametrize(("width", "dark"), [(360, True), (768, False), (1600, False)])
def test_it_opens_quietly_and_fits(browser, page, width, dark):
    requested = opened(browser, page, width, dark)
    assert {url.partition("#")[0] for url in requested} <= {page}
    assert browser.get_log("browser") == []
    ask(browser, "document.querySelectorAll('details').forEach(d => d.open = true)")
    assert ask(browser, "document.documentElement.scrollWidth") <= width
    # whatever is wider scrolls in its own box
    wide = """[...document.querySelectorAll('main *')].filter(e => {
        const box = e.getBoundingClientRect();
        return box.width && box.right > innerWidth + 1
            && !e.closest('.scroll, [popover], svg, .clip, pre')
    }).map(e => e.outerHTML.slice(0, 90))"""
    assert ask(browser, wide) == []
    colour = ask(browser, "getComputedStyle(document.body).backgroundColor")
    assert colour == ("rgb(18, 20, 22)" if dark else "rgb(253, 252, 249)")


def test_nothing_that_was_written_ran(browser, page):
    opened(browser, page)
    ask(browser, "document.querySelectorAll('details').forEach(d => d.open = true)")
    ask(browser, "document.querySelectorAll('[popover]').forEach(p => p.showPopover())")
    assert ask(browser, "typeof window.injected") == "undefined"
    assert ask(browser, "document.scripts.length") == 3
    assert ask(browser, "document.images.length") == 0
    assert ask(browser, "document.querySelectorAll('[onerror], [onload], [onfocus]').length") == 0
    data = ask(browser, "JSON.parse(document.getElementById('report-data').textContent)")
    models = [one["model"] for one in data["leaderboards"][0]["places"]]
    assert HOSTILE in models
    assert browser.get_log("browser") == []


def test_the_policy_stops_what_is_not_ours(browser, page):
    opened(browser, page)
    ran = ask(
        browser,
        """(() => { const s = document.createElement('script'); s.textContent = 'window.late = 1';
        document.body.append(s); return typeof window.late })()""",
    )
    assert ran == "undefined"
    assert "Content Security Policy" in str(browser.get_log("browser"))


def test_a_model_dims_those_that_it_is_distinguishable_from(browser, page):
    opened(browser, page)
    rows = "[...document.querySelectorAll('#all-scores tbody tr')]"
    apart = ask(
        browser, f"{rows}.map(row => row.dataset.apart.split(' ').filter(Boolean).map(Number))"
    )
    for index, others in enumerate(apart):
        ask(browser, f"{rows}[{index}].focus()")
        dimmed = ask(browser, f"{rows}.map(row => row.classList.contains('apart'))")
        assert [at for at, is_dim in enumerate(dimmed) if is_dim] == others
        sentence = ask(browser, "document.querySelector('#all-scores .say').textContent")
        assert f"from {len(others)} of 4" in sentence


def test_panels_open_and_questions_are_shown(browser, page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    opened(browser, page)
    task = browser.find_element(By.CSS_SELECTOR, "#task-1")
    assert not task.get_attribute("open")
    task.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    assert task.get_attribute("open")
    button = browser.find_element(By.CSS_SELECTOR, "#task-1 button.question")
    dialog = browser.find_element(By.ID, button.get_attribute("popovertarget"))
    assert not dialog.is_displayed()
    button.send_keys(Keys.ENTER)
    assert dialog.is_displayed()
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not dialog.is_displayed()


def test_many_questions_are_unfolded_by_a_button(browser, tmp_path):
    from selenium.webdriver.common.by import By

    rng = np.random.default_rng(0)
    ids = [f"q{i}" for i in range(60)]
    runs = [TaskRun.from_trials(m, "t", rng.integers(0, 2, (60, 4)), ids) for m in "ab"]
    file = tmp_path / "report.html"
    file.write_bytes(render(report_data(SavedRuns(tuple(runs)))).encode("utf-8"))
    opened(browser, file.as_uri())
    rows = browser.find_elements(By.CSS_SELECTOR, "table.long tbody tr")
    assert sum(row.is_displayed() for row in rows) == 40
    browser.find_element(By.CSS_SELECTOR, ".all-questions").click()
    assert sum(row.is_displayed() for row in rows) == 60


def test_a_question_shows_its_attempts(browser, tmp_path):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    trials = [{"text": HOSTILE, "outcome": 1, "completion_tokens": 1234}] + [
        {"text": f"{i} " + "word " * 9000, "outcome": 0} for i in range(3)
    ]
    asked = [{**question(trials), "answer": "<b>right</b>"}]
    saved = read_runs([write_run(tmp_path / model, model, asked) for model in ("a", "b")])
    file = tmp_path / "report.html"
    file.write_bytes(render(report_data(saved), text_bytes=60_000).encode("utf-8"))
    width = 360
    opened(browser, file.as_uri(), width)
    button = browser.find_element(By.CSS_SELECTOR, "button.question")
    button.send_keys(Keys.ENTER)
    dialog = browser.find_element(By.ID, button.get_attribute("popovertarget"))
    assert "Right answer: <b>right</b>" in dialog.text
    models = dialog.find_elements(By.CSS_SELECTOR, ".model-attempts > summary")
    assert [one.text.split("\n")[0].split()[0] for one in models] == ["a", "b"]
    models[0].send_keys(Keys.ENTER)
    browser.implicitly_wait(PATIENCE_S)  # the event that fills the list comes later
    attempts = dialog.find_elements(By.CSS_SELECTOR, ".attempt > summary")
    browser.implicitly_wait(0)
    told = [" ".join(one.text.split()) for one in attempts]
    assert told == ["1 right 1,234 tokens", "2 wrong", "3 wrong", "4 wrong"]
    for one in attempts:
        one.send_keys(Keys.ENTER)
    texts = ask(browser, "[...document.querySelectorAll('.attempt pre')].map(e => e.textContent)")
    assert texts[0].startswith("</title></script><script>window.injected=1</script><img src=x")
    assert (texts[1][:9], texts[2][-10:]) == ("0 word wo", "word word ")
    assert all(one.is_displayed() for one in dialog.find_elements(By.CSS_SELECTOR, "pre"))
    shown = len(texts[1]) + len(texts[2])
    left_out = dialog.find_element(By.CSS_SELECTOR, ".attempt .left-out").text
    n = int(left_out.split()[0].replace(",", ""))
    assert abs(n + shown - 45_002) <= 2
    assert ask(browser, "document.documentElement.scrollWidth") <= width
    wide = "[...document.querySelectorAll('.asked:popover-open *')].filter(e => "
    wide += "e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('pre')).length"
    assert ask(browser, wide) == 0
    assert ask(browser, "typeof window.injected") == "undefined"
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not dialog.is_displayed()
    assert browser.get_log("browser") == []


def test_a_table_that_goes_on_says_so(browser, page):
    opened(browser, page, 400)
    ask(browser, "document.querySelectorAll('details').forEach(d => d.open = true)")
    boxes = """[...document.querySelectorAll('.scroll')].map(e => [
        e.scrollWidth - e.clientWidth > 2, e.classList.contains('more'),
        !e.nextElementSibling.hidden && e.nextElementSibling.className === 'hint'])"""

    def state():
        return {tuple(box) for box in ask(browser, boxes)}

    wait_until(lambda: state() == {(True, True, True), (False, False, False)})
    assert sum(wider for wider, _, _ in ask(browser, boxes)) >= 2
    ask(browser, "document.querySelectorAll('.scroll').forEach(e => e.scrollLeft = e.scrollWidth)")
    wait_until(lambda: state() == {(True, False, False), (False, False, False)})


def test_without_scripts_everything_can_be_read(browser, page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    opened(browser, page, 360, scripts=False)
    source = browser.execute_cdp_cmd("DOM.getDocument", {"depth": 0})["root"]["nodeId"]
    found = browser.execute_cdp_cmd(
        "DOM.querySelectorAll", {"nodeId": source, "selector": "table.scores tbody tr[data-apart]"}
    )
    assert len(found["nodeIds"]) == 15
    browser.find_element(By.CSS_SELECTOR, "#task-1 > summary").send_keys(Keys.ENTER)
    button = browser.find_element(By.CSS_SELECTOR, "#task-1 button.question")
    button.send_keys(Keys.ENTER)
    assert browser.find_element(By.ID, button.get_attribute("popovertarget")).is_displayed()
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_paper_shows_closed_panels_too(browser, page):
    import base64

    opened(browser, page)
    ask(browser, "document.querySelectorAll('details').forEach(d => d.open = false)")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    panel = "document.querySelector('#task-2 section').getBoundingClientRect().height"
    assert ask(browser, panel) > 50
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF-")
    # as before
    assert not any(ask(browser, "[...document.querySelectorAll('details')].map(d => d.open)"))


def test_attempts_without_a_score_are_counted(browser, tmp_path):
    """The second of three epochs of a sample of this log ended in an error."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    log = REPOSITORY / "tests/runs/readers/data/inspect_ai/weak.eval"
    saved = read_runs([log])
    file = tmp_path / "report.html"
    file.write_bytes(render(report_data(saved), text_bytes=0).encode("utf-8"))
    opened(browser, file.as_uri(), 1200)
    lines = {}
    for button in browser.find_elements(By.CSS_SELECTOR, "button.question"):
        button.send_keys(Keys.ENTER)
        dialog = browser.find_element(By.ID, button.get_attribute("popovertarget"))
        browser.implicitly_wait(PATIENCE_S)
        attempts = dialog.find_elements(By.CSS_SELECTOR, ".attempt")
        browser.implicitly_wait(0)
        numbers = tuple(attempt.text.split()[0] for attempt in attempts)
        lines[numbers] = [p.text for p in dialog.find_elements(By.CSS_SELECTOR, ".left-out")]
        browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert lines == {
        ("1", "2"): ["1 attempt without a score, as after an error, not counted."],
        ("1", "2", "3"): [],
    }
    assert browser.get_log("browser") == []
