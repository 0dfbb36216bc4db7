/* What the controls say is computed by `lmeb` and shown by `draw`. */
(() => {
  const MOST = 128;
  const REPEATS = 200;
  const Z = lmeb.normalQuantile(0.95);
  const PSEUDO = { uniform: 1, jeffreys: 0.5 };
  const SLIDERS = ["trials", "k", "models", "gap", "questions", "mean", "spread"];
  const $ = (id) => document.getElementById(id);
  const points = (value) => `${(100 * value).toFixed(1)}%`;

  const start = JSON.parse($("start").textContent);
  const state = { ...start, shown: Math.floor((start.models - 1) / 2) };

  // -- what is computed, kept until what it depends on changes ---------------------------------

  let coins = [];
  let truths = [];
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
    // neighbours draw nearer where they would not fit between 0 and 1
    const room = Math.min(state.mean, 1 - state.mean) - 0.01;
    const gap = Math.min(state.gap, middle ? room / middle : state.gap);
    const wanted = Array.from({ length: state.models }, (_, i) => state.mean + gap * (middle - i));
    const made = new Map();
    coins = wanted.map((mean) => {
      if (!made.has(mean)) made.set(mean, lmeb.mimic(mean, state.questions, strength));
      return made.get(mean);
    });
    truths = wanted;
    counts = coins.map((p, i) => lmeb.runningCounts(p, MOST, state.seed, i));
    learned = coins.map(() => new Map());
  }

  const totals = (n) => new Array(state.questions).fill(n);

  function posterior(model, n) {
    const right = counts[model][n];
    if (state.prior !== "learned") return lmeb.bayesAtN(right, totals(n), PSEUDO[state.prior]);
    if (!learned[model].has(n)) learned[model].set(n, lmeb.hbayesAtN(right, totals(n)));
    return learned[model].get(n);
  }

  /** The numbers of trials at which the learned prior is worked out: it takes milliseconds. */
  function steps(n) {
    const found = [];
    for (let i = 1; i < n; i += i < 8 ? 1 : 2 ** Math.floor(Math.log2(i) - 2)) found.push(i);
    return [...found, n];
  }

  /** Places 1..L by some scores; models of one score keep the order of their letters. */
  function places(values) {
    if (values.some((value) => !Number.isFinite(value))) return null;
    const order = values.map((_, i) => i);
    order.sort((a, b) => (Math.abs(values[b] - values[a]) > 1e-12 ? values[b] - values[a] : a - b));
    const found = [];
    order.forEach((model, place) => { found[model] = place + 1; });
    return found;
  }

  /** The number of trials from which on the order has not changed any more. */
  function settled(orders) {
    const last = JSON.stringify(orders[orders.length - 1]);
    let n = orders.length;
    while (n > 1 && JSON.stringify(orders[n - 2]) === last) n -= 1;
    return n;
  }

  // -- what is shown ----------------------------------------------------------------------------

  const trialsIn = (n) => (n === 1 ? "1 trial a question" : `${n} trials a question`);
  const say = (selector, text) =>
    document.querySelectorAll(selector).forEach((one) => { one.textContent = text; });

  function spreadInWords() {
    if (state.spread < -0.4) return "solved or not";
    if (state.spread < 0.6) return "very mixed";
    return state.spread < 1.4 ? "mixed" : "much alike";
  }

  function outputs() {
    const gap = state.models > 1 ? truths[0] - truths[1] : 0;
    const told = {
      trials: `${state.trials}`, k: `${state.k}`, models: `${state.models}`,
      gap: `${(100 * gap).toFixed(1)} points`, questions: `${state.questions}`,
      mean: draw.percent(state.mean), spread: spreadInWords(),
    };
    for (const [id, text] of Object.entries(told)) {
      $(`${id}-out`).textContent = text;
      $(id).setAttribute("aria-valuetext", text);
    }
    $("seed-out").textContent = state.seed;
    say(".n", trialsIn(state.trials));
    say(".shown", draw.letter(state.shown));
    say(".pass", `Pass@${state.k}`);
    $("th-pass").textContent = `Pass@${state.k}`;
    $("th-interval").textContent = `${100 * state.level}% interval`;
  }

  /** A probability from one half on, never told as certain. */
  const surely = (rho) => (rho > 0.995 ? "over 99%" : draw.percent(rho));

  function table(found) {
    const ranks = lmeb.ranksWithTies(found, Z);
    const order = found.map((_, i) => i).sort((a, b) => found[b].mu - found[a].mu || a - b);
    const rows = order.map((i, place) => {
      const one = found[i];
      const next = found[order[place + 1]];
      return [
        ranks[i], one.name, points(one.truth),
        `${points(one.mu)} ± ${points(one.sigma).replace("%", "")}`,
        `${points(one.low)} to ${points(one.high)}`, one.holds ? "yes" : "no",
        points(one.average), Number.isFinite(one.pass) ? points(one.pass) : `needs N ≥ ${state.k}`,
        next ? surely(lmeb.separation(one, next).rho) : "",
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

  function sentence(found, byPass) {
    const held = found.filter((one) => one.holds).length;
    const pairs = lmeb.kendallTauB(found.map((one) => one.mu), truths);
    const agreement = Number.isFinite(pairs) ? `, Kendall’s τ with the true order ${pairs.toFixed(2)}` : "";
    const trueOrder = JSON.stringify(places(truths));
    const verdict = (order) => (JSON.stringify(order) === trueOrder ? "right" : "wrong");
    const pass = byPass[byPass.length - 1];
    let order;
    if (truths[0] - truths[truths.length - 1] < 1e-12) {
      order = "All true scores are equal, so no order is the true one.";
    } else {
      const other = pass ? `by Pass@${state.k} the order is ${verdict(pass)}`
        : `Pass@${state.k} does not exist before ${state.k} trials`;
      order = `The order by posterior mean is ${verdict(places(found.map((one) => one.mu)))}` +
        `${agreement}; ${other}.`;
    }
    $("told").textContent = `After ${trialsIn(state.trials)} the ${100 * state.level}% intervals ` +
      `hold ${held} of ${found.length} true scores. ${order}`;
  }

  function render() {
    toss();
    state.shown = Math.min(state.shown, state.models - 1);
    outputs();
    const n = state.trials;
    const found = coins.map((_, i) => {
      const { mu, sigma } = posterior(i, n);
      const { low, high } = lmeb.betaInterval(mu, sigma, state.level);
      return {
        index: i, name: draw.letter(i), truth: truths[i], mu, sigma, low, high,
        holds: low <= truths[i] && truths[i] <= high,
        average: lmeb.avgAtN(counts[i][n], totals(n)).value,
        pass: lmeb.passAtK(counts[i][n], totals(n), state.k),
      };
    });
    draw.shape($("shape"), coins[Math.floor((state.models - 1) / 2)]);
    draw.now($("now"), found, `${100 * state.level}% interval`);
    table(found);
    const every = Array.from({ length: n }, (_, t) => t + 1);
    // for equal N a prior that all questions share orders models by all their right answers
    const byMean = every.map((t) => places(counts.map((of) => of[t].reduce((a, b) => a + b))));
    const byPass = every.map((t) => places(counts.map((of) => lmeb.passAtK(of[t], totals(t), state.k))));
    const truth = places(truths);
    draw.ranks($("ranks-mean"), byMean, truth, MOST, "Order by right answers");
    draw.ranks($("ranks-pass"), byPass, truth, MOST, `Order by Pass@${state.k}`);
    const when = (orders) => (orders[n - 1] === null ? `needs ${state.k} trials`
      : `the same since trial ${settled(orders)}`);
    $("settled-mean").textContent = when(byMean);
    $("settled-pass").textContent = when(byPass);
    sentence(found, byPass);
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
    draw.way($("way"), { index: i, name: draw.letter(i), truth: truths[i], steps: along, all }, MOST);
  }

  // -- tossed 200 times -------------------------------------------------------------------------

  let repeating = 0;
  function forget() {
    repeating += 1;
    $("often").replaceChildren();
    $("repeat-told").textContent = "";
  }

  function repeat() {
    forget();
    const mine = repeating;
    const { shown, trials, level, seed, questions } = state;
    const p = coins[shown];
    const total = new Array(questions).fill(trials);
    const rows = ["uniform", "Jeffreys", "learned"].map((name) => ({ name, held: 0, width: 0 }));
    let done = 0;
    const some = () => {
      if (mine !== repeating) return;
      const until = performance.now() + 40;
      for (; done < REPEATS && performance.now() < until; done += 1) {
        const from = seed * 1000 + done + 500;
        const right = p.map((chance, q) => {
          let sum = 0;
          for (let t = 1; t <= trials; t += 1) sum += lmeb.toss(from, shown + 100, q, t) < chance ? 1 : 0;
          return sum;
        });
        const found = [lmeb.bayesAtN(right, total, 1), lmeb.bayesAtN(right, total, 0.5),
          lmeb.hbayesAtN(right, total)];
        found.forEach(({ mu, sigma }, i) => {
          const { low, high } = lmeb.betaInterval(mu, sigma, level);
          rows[i].held += low <= truths[shown] && truths[shown] <= high ? 1 : 0;
          rows[i].width += high - low;
        });
      }
      if (done < REPEATS) {
        $("repeat-told").textContent = `${done} of ${REPEATS}`;
        setTimeout(some, 0);
        return;
      }
      const shares = rows.map((one) => ({
        name: one.name, held: one.held / REPEATS, width: one.width / REPEATS,
      }));
      draw.often($("often"), shares, level);
      $("repeat-told").textContent = `Of ${REPEATS} intervals said to hold ${100 * level}%: ` +
        shares.map((one) => `${one.name} ${draw.percent(one.held)}`).join(", ") + ".";
    };
    some();
  }

  // -- the controls -----------------------------------------------------------------------------

  let playing = 0;
  function stop() {
    clearInterval(playing);
    playing = 0;
    $("play").textContent = "Play";
    $("play").setAttribute("aria-pressed", "false");
    $("told").removeAttribute("aria-live");
  }

  function play() {
    if (playing) {
      stop();
      return;
    }
    if (state.trials >= MOST) set("trials", 1);
    $("play").textContent = "Pause";
    $("play").setAttribute("aria-pressed", "true");
    $("told").setAttribute("aria-live", "off");
    playing = setInterval(() => {
      if (state.trials >= MOST) stop();
      else set("trials", Math.min(MOST, state.trials + Math.max(1, Math.floor(state.trials / 12))));
    }, 160);
  }

  function set(id, value) {
    state[id] = value;
    $(id).value = value;
    forget();
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
      forget();
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
    forget();
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
    forget();
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
