"""How many trials a run saves that stops when the answer is known.

First: two biased coins on the same 30 questions, analysed after every 4 trials. How many trials
does it take to tell them apart, and how often is a winner named among equals? Beside it, the
fixed design: 80 trials and one analysis, at the same error rate.

Second: trials until a credible interval is narrow enough, given evenly to all questions, or to
the questions that still carry the variance.

    python examples/trials_saved.py               # a taste, in seconds
    python examples/trials_saved.py --runs 1000   # the numbers of docs/evidence.md
"""

import argparse

import numpy as np

import lm_eval_bayes as leb

M, BATCH, MOST = 30, 4, 80
LOOKS = tuple(range(BATCH, MOST + 1, BATCH))
GAPS = (0.0, 0.03, 0.06, 0.1)
SHAPES = {"Beta(2,3)": (2.0, 3.0), "Beta(.3,.3)": (0.3, 0.3), "Beta(.2,2)": (0.2, 2.0)}
WIDTH = 0.05


def posterior_after(right, n):
    """Return hbayes@N from the successes of every question after n trials."""
    return leb.hbayes_at_n(leb.Outcomes.from_counts(np.stack([n - right, right], axis=1)))


def decide(designs, a, b):
    """Analyse after every batch; return each design's (trials used, sign of the decision)."""
    decided = {}
    for n in LOOKS:
        open_designs = {name: rule for name, rule in designs.items() if name not in decided}
        if not any(rule.threshold(n) for rule in open_designs.values()):
            continue
        both = {
            name: posterior_after(trials[:, :n].sum(axis=1), n)
            for name, trials in (("a", a), ("b", b))
        }
        for name, rule in open_designs.items():
            verdict = rule.evaluate(n, both)
            if verdict.stop:
                decided[name] = n, 1.0 if verdict.winner == "a" else -1.0
    return {name: decided.get(name, (MOST, 0.0)) for name in designs}


def shifted(p, gap):
    """Return probabilities whose mean is larger by `gap`, each moved in its logit."""
    logit = np.log(p / (1 - p))
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        moved = 1 / (1 + np.exp(-(logit + middle)))
        low, high = (middle, high) if moved.mean() - p.mean() < gap else (low, middle)
    return moved if gap else p


def decisions(runs, rng):
    """Print how soon each design decides, how often, and how often wrongly."""
    designs = {
        "80 trials, one analysis": leb.DecisionReached(0.95, analyses=(MOST,)),
        "O'Brien-Fleming": leb.DecisionReached(0.95, correction="obrien-fleming", analyses=LOOKS),
        "Pocock": leb.DecisionReached(0.95, correction="pocock", analyses=LOOKS),
        "anytime": leb.DecisionReached(0.95, correction="anytime"),
        "uncorrected, z >= 1.96": leb.DecisionReached(0.95, analyses=LOOKS),
    }
    print(f"Two models on {M} questions, p ~ Beta(2,3); {runs} runs\n")
    print("| true difference | design | trials per question | decided, % | wrong winner, % |")
    print("|---|---|---|---|---|")
    for gap in GAPS:
        used = {name: [] for name in designs}
        signs = {name: [] for name in designs}
        for _ in range(runs):
            q = np.clip(rng.beta(2.0, 3.0, size=M), 0.01, 0.9)
            p = shifted(q, gap)
            a, b = (rng.random((M, MOST)) < probabilities[:, None] for probabilities in (p, q))
            for name, (n, sign) in decide(designs, a, b).items():
                used[name].append(n)
                signs[name].append(sign)
        for name in designs:
            sign = np.array(signs[name])
            wrong = (sign != 0.0) if gap == 0.0 else (sign < 0.0)
            print(
                f"| {gap:g} | {name} | {np.mean(used[name]):.1f} | {100 * (sign != 0).mean():.1f} "
                f"| {100 * wrong.mean():.1f} |"
            )
    print()


def trials_to_width(p, rng, by_question):
    """Return how many trials in all it takes to a narrow interval."""
    right, n = np.zeros(M, dtype=np.int64), np.zeros(M, dtype=np.int64)
    more = np.full(M, BATCH)
    while True:
        right += rng.binomial(more, p)
        n += more
        outcomes = leb.Outcomes.from_counts(np.stack([n - right, right], axis=1))
        posterior = leb.hbayes_at_n(outcomes)
        if posterior.interval().width <= WIDTH or n.sum() >= 400 * M:
            return int(n.sum())
        more = np.full(M, BATCH)
        if by_question:
            more = leb.allocate_trials(posterior, outcomes, BATCH * M)


def allocation(runs, rng):
    """Print what it saves to give trials where the variance is."""
    print(f"Trials until the 95% interval of {M} questions is {WIDTH} wide; {runs} runs\n")
    print("| p ~ | evenly | by variance | ratio |")
    print("|---|---|---|---|")
    for shape, (a, b) in SHAPES.items():
        even, chosen = [], []
        for _ in range(runs):
            p = rng.beta(a, b, size=M)
            even.append(trials_to_width(p, rng, by_question=False))
            chosen.append(trials_to_width(p, rng, by_question=True))
        ratio = np.mean(even) / np.mean(chosen)
        print(f"| {shape} | {np.mean(even):.0f} | {np.mean(chosen):.0f} | {ratio:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=4, help="simulated runs a line")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    decisions(args.runs, rng)
    allocation(max(args.runs // 4, 2), rng)


if __name__ == "__main__":
    main()
