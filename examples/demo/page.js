/* The page: `lmeb` computes what the controls select, `draw` shows it. */
(() => {
  const MOST = 128;
  const REPEATS = 200;
  const PSEUDO = { uniform: 1, jeffreys: 0.5 };
  const PRIOR_NAMES = { uniform: "uniform", jeffreys: "Jeffreys", learned: "learned" };
  const SLIDERS = ["trials", "k", "models", "gap", "questions", "mean", "spread"];
  const $ = (id) => document.getElementById(id);
  const points = (value) => `${(100 * value).toFixed(1)}%`;

  const start = JSON.parse($("start").textContent);
  const state = { ...start, shown: Math.floor((start.models - 1) / 2) };

  // -- simulated trials and posteriors, cached until a setting changes --------------------------

  let probabilities = [];
  let trueScores = [];
  let counts = [];
  let learned = [];
  let shapeOf = "";

  function toss() {
    const key = JSON.stringify([state.models, state.gap, state.questions, state.mean,
      state.spread, state.seed]);
    if (key === shapeOf) return;
    shapeOf = key;
    const strength = 10 ** state.spread;
    const middle = (state.models - 1) / 2;
    // a smaller difference if the scores would leave (0, 1)
    const room = Math.min(state.mean, 1 - state.mean) - 0.01;
    const gap = Math.min(state.gap, middle ? room / middle : state.gap);
    const wanted = Array.from({ length: state.models }, (_, i) => state.mean + gap * (middle - i));
    const byMean = new Map();
    probabilities = wanted.map((mean) => {
      if (!byMean.has(mean)) byMean.set(mean, lmeb.mimic(mean, state.questions, strength));
      return byMean.get(mean);
    });
    trueScores = wanted;
    counts = probabilities.map((p, i) => lmeb.runningCounts(p, MOST, state.seed, i));
    learned = probabilities.map(() => new Map());
  }

  const totals = (n) => new Array(state.questions).fill(n);

  function posterior(model, n, prior = state.prior) {
    const right = counts[model][n];
    if (prior !== "learned") return lmeb.bayesAtN(right, totals(n), PSEUDO[prior]);
    if (!learned[model].has(n)) learned[model].set(n, lmeb.hbayesAtN(right, totals(n)));
    return learned[model].get(n);
  }

  /** The interval of a model's score, and whether it covers the true one. */
  function interval(model, n, prior) {
    const { mu, sigma } = posterior(model, n, prior);
    const { low, high } = lmeb.betaInterval(mu, sigma, state.level);
    return { low, high, holds: low <= trueScores[model] && trueScores[model] <= high };
  }

  /** The prior whose intervals stand beside those of the chosen one. */
  const otherPrior = () => (state.prior === "learned" ? "uniform" : "learned");

  /** The numbers of trials at which the learned prior is computed, which takes milliseconds. */
  function steps(n) {
    const numbers = [];
    for (let i = 1; i < n; i += i < 8 ? 1 : 2 ** Math.floor(Math.log2(i) - 2)) numbers.push(i);
    return [...numbers, n];
  }

  /** Ranks 1..L by scores; tied models are in the order of their letters. */
  function ranks(values) {
    if (values.some((value) => !Number.isFinite(value))) return null;
    const order = values.map((_, i) => i);
    order.sort((a, b) => (Math.abs(values[b] - values[a]) > 1e-12 ? values[b] - values[a] : a - b));
    const result = [];
    order.forEach((model, i) => { result[model] = i + 1; });
    return result;
  }

  /** The number of trials from which on the ranking has not changed. */
  function convergedAt(orders) {
    const last = JSON.stringify(orders[orders.length - 1]);
    let n = orders.length;
    while (n > 1 && JSON.stringify(orders[n - 2]) === last) n -= 1;
    return n;
  }

  // -- output -----------------------------------------------------------------------------------

  const trialsIn = (n) => (n === 1 ? "1 trial per question" : `${n} trials per question`);
  const setText = (selector, text) =>
    document.querySelectorAll(selector).forEach((element) => { element.textContent = text; });

  function spreadInWords() {
    if (state.spread < -0.4) return "bimodal";
    if (state.spread < 0.6) return "very mixed";
    return state.spread < 1.4 ? "mixed" : "homogeneous";
  }

  function outputs() {
    const gap = state.models > 1 ? trueScores[0] - trueScores[1] : 0;
    const texts = {
      trials: `${state.trials}`, k: `${state.k}`, models: `${state.models}`,
      gap: `${(100 * gap).toFixed(1)} points`, questions: `${state.questions}`,
      mean: draw.percent(state.mean), spread: spreadInWords(),
    };
    for (const [id, text] of Object.entries(texts)) {
      $(`${id}-out`).textContent = text;
      $(id).setAttribute("aria-valuetext", text);
    }
    $("seed-out").textContent = state.seed;
    setText(".n", trialsIn(state.trials));
    setText(".shown", draw.letter(state.shown));
    setText(".prior", PRIOR_NAMES[state.prior]);
    setText(".other-prior", otherPrior());
    setText(".pass", `Pass@${state.k}`);
    $("th-pass").textContent = `Pass@${state.k}`;
    $("th-interval").textContent = `${100 * state.level}% interval`;
  }

  function table(models) {
    const n = state.trials;
    // with one trial per question the learned prior has no information about chance
    const averages = n === 1 && state.prior === "learned"
      ? models.map(({ index }) => counts[index][1]) : null;
    const tiedRanks = lmeb.simultaneousRanks(models, state.questions * (n - 1), averages, 0.95).ranks;
    const order = models.map((_, i) => i).sort((a, b) => models[b].mu - models[a].mu || a - b);
    const rows = order.map((i, position) => {
      const model = models[i];
      const next = models[order[position + 1]];
      return [
        tiedRanks[i], model.name, points(model.truth),
        `${points(model.mu)} ± ${points(model.sigma).replace("%", "")}`,
        `${points(model.low)} to ${points(model.high)}`, model.holds ? "yes" : "no",
        points(model.average), Number.isFinite(model.pass) ? points(model.pass) : `needs N ≥ ${state.k}`,
        next ? draw.probability(lmeb.separation(model, next).rho) : "",
      ];
    });
    const body = $("numbers").tBodies[0];
    body.replaceChildren(...rows.map((cells) => {
      const row = document.createElement("tr");
      cells.forEach((text, column) => {
        const cell = document.createElement(column === 1 ? "th" : "td");
        if (column === 1) cell.scope = "row";
        if (column === 5 && text === "no") cell.className = "missed";
        cell.textContent = text;
        row.append(cell);
      });
      return row;
    }));
  }

  function sentence(models, byPass) {
    const covered = models.filter((model) => model.holds).length;
    const otherCovered = models.filter((model) => model.beside.holds).length;
    const tau = lmeb.kendallTauB(models.map((model) => model.mu), trueScores);
    const agreement = Number.isFinite(tau) ? `, Kendall’s τ with the true ranking ${tau.toFixed(2)}` : "";
    const trueOrder = JSON.stringify(ranks(trueScores));
    const verdict = (order) => (JSON.stringify(order) === trueOrder ? "right" : "wrong");
    const pass = byPass[byPass.length - 1];
    let order;
    if (trueScores[0] - trueScores[trueScores.length - 1] < 1e-12) {
      order = "All true scores are equal, so there is no true ranking.";
    } else {
      const other = pass ? `by Pass@${state.k} it is ${verdict(pass)}`
        : `Pass@${state.k} needs ${state.k} trials`;
      order = `The ranking by posterior mean is ${verdict(ranks(models.map((model) => model.mu)))}` +
        `${agreement}; ${other}.`;
    }
    $("status").textContent = `After ${trialsIn(state.trials)} the ${100 * state.level}% intervals of the ` +
      `${PRIOR_NAMES[state.prior]} prior cover ${covered} of ${models.length} true scores, those of the ` +
      `${otherPrior()} prior ${otherCovered}. ${order}`;
  }

  function render() {
    toss();
    state.shown = Math.min(state.shown, state.models - 1);
    outputs();
    const n = state.trials;
    const models = probabilities.map((_, i) => {
      return {
        index: i, name: draw.letter(i), truth: trueScores[i],
        ...posterior(i, n), ...interval(i, n, state.prior), beside: interval(i, n, otherPrior()),
        average: lmeb.avgAtN(counts[i][n], totals(n)).value,
        pass: lmeb.passAtK(counts[i][n], totals(n), state.k),
      };
    });
    draw.shape($("shape"), probabilities[Math.floor((state.models - 1) / 2)]);
    draw.now($("now"), models, `${100 * state.level}% interval`);
    table(models);
    const every = Array.from({ length: n }, (_, t) => t + 1);
    // for equal N a prior that all questions share ranks models by their number of right answers
    const byMean = every.map((t) => ranks(counts.map((of) => of[t].reduce((a, b) => a + b))));
    const byPass = every.map((t) => ranks(counts.map((of) => lmeb.passAtK(of[t], totals(t), state.k))));
    const truth = ranks(trueScores);
    draw.ranks($("ranks-mean"), byMean, truth, MOST, "Ranking by right answers");
    draw.ranks($("ranks-pass"), byPass, truth, MOST, `Ranking by Pass@${state.k}`);
    const when = (orders) => (orders[n - 1] === null ? `needs ${state.k} trials`
      : `unchanged since trial ${convergedAt(orders)}`);
    $("settled-mean").textContent = when(byMean);
    $("settled-pass").textContent = when(byPass);
    sentence(models, byPass);
    later(() => showWay(n));
  }

  let waiting = 0;
  function later(task) {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(task);
  }

  function showWay(n) {
    const i = state.shown;
    const at = state.prior === "learned" ? steps(n) : Array.from({ length: n }, (_, t) => t + 1);
    const along = at.map((t) => {
      const { mu, sigma } = posterior(i, t);
      return { n: t, mu, ...lmeb.betaInterval(mu, sigma, state.level) };
    });
    const all = Array.from({ length: n }, (_, t) => ({
      n: t + 1,
      average: lmeb.avgAtN(counts[i][t + 1], totals(t + 1)).value,
      pass: lmeb.passAtK(counts[i][t + 1], totals(t + 1), state.k),
    }));
    draw.way($("way"), { index: i, name: draw.letter(i), truth: trueScores[i], steps: along, all }, MOST);
  }

  // -- coverage ---------------------------------------------------------------------------------

  let repeating = 0;
  function clearCoverage() {
    repeating += 1;
    $("often").replaceChildren();
    $("repeat-status").textContent = "";
  }

  function repeat() {
    clearCoverage();
    const current = repeating;
    const { shown, trials, level, seed, questions } = state;
    const p = probabilities[shown];
    const total = new Array(questions).fill(trials);
    const rows = ["uniform", "Jeffreys", "learned"].map((name) => ({ name, covered: 0, width: 0 }));
    let done = 0;
    const batch = () => {
      if (current !== repeating) return;
      const until = performance.now() + 40;
      for (; done < REPEATS && performance.now() < until; done += 1) {
        const from = seed * 1000 + done + 500;
        const right = p.map((chance, q) => {
          let sum = 0;
          for (let t = 1; t <= trials; t += 1) sum += lmeb.toss(from, shown + 100, q, t) < chance ? 1 : 0;
          return sum;
        });
        const posteriors = [lmeb.bayesAtN(right, total, 1), lmeb.bayesAtN(right, total, 0.5),
          lmeb.hbayesAtN(right, total)];
        posteriors.forEach(({ mu, sigma }, i) => {
          const { low, high } = lmeb.betaInterval(mu, sigma, level);
          rows[i].covered += low <= trueScores[shown] && trueScores[shown] <= high ? 1 : 0;
          rows[i].width += high - low;
        });
      }
      if (done < REPEATS) {
        $("repeat-status").textContent = `${done} of ${REPEATS}`;
        setTimeout(batch, 0);
        return;
      }
      const shares = rows.map((row) => ({
        name: row.name, held: row.covered / REPEATS, width: row.width / REPEATS,
      }));
      draw.often($("often"), shares, level);
      $("repeat-status").textContent = `Coverage of ${REPEATS} intervals (nominal ${100 * level}%): ` +
        shares.map((share) => `${share.name} ${draw.percent(share.held)}`).join(", ") + ".";
    };
    batch();
  }

  // -- the controls -----------------------------------------------------------------------------

  let playing = 0;
  function stop() {
    clearInterval(playing);
    playing = 0;
    $("play").textContent = "Play";
    $("play").setAttribute("aria-pressed", "false");
    $("status").removeAttribute("aria-live");
  }

  function play() {
    if (playing) {
      stop();
      return;
    }
    if (state.trials >= MOST) set("trials", 1);
    $("play").textContent = "Pause";
    $("play").setAttribute("aria-pressed", "true");
    $("status").setAttribute("aria-live", "off");
    playing = setInterval(() => {
      if (state.trials >= MOST) stop();
      else set("trials", Math.min(MOST, state.trials + Math.max(1, Math.floor(state.trials / 12))));
    }, 160);
  }

  function set(id, value) {
    state[id] = value;
    $(id).value = value;
    clearCoverage();
    render();
  }

  function models() {
    const options = Array.from({ length: state.models }, (_, i) => {
      const option = document.createElement("option");
      option.value = i;
      option.textContent = `Model ${draw.letter(i)}`;
      return option;
    });
    state.shown = Math.min(state.shown, state.models - 1);
    $("shown").replaceChildren(...options);
    $("shown").value = state.shown;
  }

  document.querySelector("main").hidden = false;
  for (const id of SLIDERS) {
    $(id).value = state[id];
    state[id] = Number($(id).value);
    $(id).addEventListener("input", () => {
      if (id === "trials") stop();
      state[id] = Number($(id).value);
      if (["mean", "spread"].includes(id)) $("preset").value = "";
      if (id === "models") models();
      clearCoverage();
      render();
    });
  }
  $("level").value = String(state.level);
  $("level").addEventListener("change", () => set("level", Number($("level").value)));
  $("shown").addEventListener("change", () => set("shown", Number($("shown").value)));
  $("preset").addEventListener("change", () => {
    if (!$("preset").value) return;
    const [mean, spread] = $("preset").value.split(",").map(Number);
    Object.assign(state, { mean, spread });
    $("mean").value = mean;
    $("spread").value = spread;
    clearCoverage();
    render();
  });
  for (const choice of document.getElementsByName("prior")) {
    choice.checked = choice.value === state.prior;
    choice.addEventListener("change", () => {
      state.prior = choice.value;
      render();
    });
  }
  $("play").addEventListener("click", play);
  $("again").addEventListener("click", () => {
    state.seed = (state.seed + 1) % 1000000;
    clearCoverage();
    render();
  });
  $("repeat").addEventListener("click", repeat);
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  let resizing = 0;
  let width = document.body.clientWidth;
  window.addEventListener("resize", () => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    clearTimeout(resizing);
    resizing = setTimeout(() => { render(); }, 100);
  });
  models();
  render();
})();
