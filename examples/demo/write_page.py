"""Write the demo page, on which simulated models answer simulated questions, as one HTML file.

    python examples/demo/write_page.py demo.html

The page needs no network. It computes posteriors in JavaScript; tests/examples/test_demo_page.py
compares them with the functions of lm_eval_bayes.
"""

import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def page() -> str:
    """Return the page with its style and its scripts in it."""
    return re.sub(r"@@([\w.]+)@@", lambda match: text_of(match[1]), text_of("page.html")) + "\n"


def text_of(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8").rstrip("\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python write_page.py FILE")
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
    print(f"{sys.argv[1]}: open it in a browser")
