"use strict";

/* The closed forms of the page, and the learned prior on a grid; no drawing, no document.
   A test runs these functions under Node and compares them with lm_eval_bayes. */
const lmeb = (() => {
  const { betaQuantile, expit, log1pexp, normalCdf, normalQuantile } = special;

  // -- posteriors and estimates --------------------------------------------------------------

  const sum = (values) => values.reduce((a, b) => a + b, 0);

  /** Bayes@N for two categories: μ and σ, with `pseudo` pseudo-counts per category. */
  function bayesAtN(right, total, pseudo = 1) {
    let mean = 0;
    let variance = 0;
    right.forEach((c, i) => {
      const all = total[i] + 2 * pseudo;
      const m = (c + pseudo) / all;
      mean += m;
      variance += (m * (1 - m)) / (all + 1);
    });
    return { mu: mean / right.length, sigma: Math.sqrt(variance) / right.length };
  }

  /** avg@N, with the sd of [Hariri 2026, eq. 20]. */
  function avgAtN(right, total) {
    let mean = 0;
    let variance = 0;
    right.forEach((c, i) => {
      const n = total[i];
      const m = (c + 1) / (n + 2);
      mean += c / n;
      variance += ((m * (1 - m)) / (n + 3)) * ((n + 2) / n) ** 2;
    });
    return { value: mean / right.length, sigma: Math.sqrt(variance) / right.length };
  }

  /** Pass@k = mean of 1 − C(n − c, k)/C(n, k); NaN where some n is below k. */
  function passAtK(right, total, k) {
    let mean = 0;
    for (let i = 0; i < right.length; i += 1) {
      if (total[i] < k) return NaN;
      let none = 1;
      for (let j = 0; j < k && none > 0; j += 1) {
        none *= Math.max(0, total[i] - right[i] - j) / (total[i] - j);
      }
      mean += 1 - none;
    }
    return mean / right.length;
  }

  /** Equal-tailed interval of the Beta distribution with this mean and sd. */
  function betaInterval(mu, sigma, level) {
    const tail = 0.5 * (1 - level);
    const variance = sigma * sigma;
    if (variance === 0) return { low: mu, high: mu };
    if (variance >= mu * (1 - mu)) {
      return { low: tail >= 1 - mu ? 1 : 0, high: tail >= mu ? 0 : 1 };
    }
    const worth = (mu * (1 - mu)) / variance - 1;
    if (worth > 1e12) {
      const reach = normalQuantile(1 - tail) * sigma;
      return { low: Math.max(mu - reach, 0), high: Math.min(mu + reach, 1) };
    }
    const a = mu * worth;
    const b = (1 - mu) * worth;
    return { low: betaQuantile(a, b, tail), high: 1 - betaQuantile(b, a, tail) };
  }

  /** z and ρ of two scores: |μ − μ'| / sqrt(σ² + σ'²) and Φ(z). */
  function separation(a, b) {
    const gap = Math.abs(a.mu - b.mu);
    const z = gap === 0 ? 0 : gap / Math.hypot(a.sigma, b.sigma);
    return { z, rho: normalCdf(z) };
  }

  // -- simultaneous comparisons, as in stats/ranking/simultaneous.py --------------------------

  const DRAWS = 4000;

  /** Standard normal numbers from a seed. */
  function normals(seed) {
    let state = seed >>> 0;
    const uniform = () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let t = Math.imul(state ^ (state >>> 15), state | 1);
      t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
    return () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  }

  /** A χ² number: by squares, or for many degrees of freedom by Wilson and Hilferty's cube. */
  function chiSquare(freedom, normal) {
    if (freedom > 30) {
      const share = 2 / (9 * freedom);
      return freedom * Math.max(0, 1 - share + Math.sqrt(share) * normal()) ** 3;
    }
    let total = 0;
    for (let i = 0; i < freedom; i += 1) total += normal() ** 2;
    return total;
  }

  /** Pairs i < j, differences of scores and their variances; `draw` gives errors of both. */
  function independentPairs(models, freedom) {
    const pairs = [];
    models.forEach((b, j) => models.slice(0, j).forEach((a, i) => pairs.push(
      { i, j, difference: a.mu - b.mu, variance: a.sigma ** 2 + b.sigma ** 2 })));
    const draw = (normal) => {
      const error = models.map((model) => model.sigma * normal());
      const variance = models.map(({ sigma }) => sigma ** 2
        * (freedom > 0 ? Math.min(chiSquare(freedom, normal) / freedom, 1) : 1));
      return pairs.map(({ i, j }) => [error[i] - error[j], variance[i] + variance[j]]);
    };
    return { pairs, draw };
  }

  /** The same of scores that are paired by question; averages[model][question]. */
  function questionPairs(averages) {
    const M = averages[0].length;
    const mean = averages.map((row) => sum(row) / M);
    const freedom = M - 1;
    const covariance = averages.map((row, i) => averages.map((other, j) =>
      sum(row.map((x, q) => (x - mean[i]) * (other[q] - mean[j]))) / freedom));
    // Cholesky's factor, columns of zeros left out
    const factor = averages.map(() => []);
    averages.forEach((_, k) => {
      const rest = averages.map((__, i) =>
        covariance[i][k] - sum(factor[i].map((x, c) => x * factor[k][c])));
      if (rest[k] <= 1e-12) return;
      const root = Math.sqrt(rest[k]);
      factor.forEach((row, i) => row.push(i < k ? 0 : rest[i] / root));
    });
    const K = factor[0].length;
    // the variance that Student's t gives a mean
    const estimate = (freedom / M) / (M * Math.max(1 - 4 / M, 0.5) + 1);
    const pairs = [];
    averages.forEach((_, j) => averages.slice(0, j).forEach((__, i) => pairs.push({
      i, j, difference: mean[i] - mean[j],
      variance: estimate * (covariance[i][i] + covariance[j][j] - 2 * covariance[i][j]),
    })));
    const draw = (normal) => {
      const z = Array.from({ length: K }, normal);
      const root = Array.from({ length: K }, (_, r) => Array.from({ length: K }, (__, c) => {
        if (c > r) return 0;
        return c === r ? Math.sqrt(chiSquare(freedom - r, normal)) : normal();
      }));
      return pairs.map(({ i, j }) => {
        const along = factor[i].map((x, c) => x - factor[j][c]);
        const spread = root.map((_, c) => sum(along.map((x, r) => x * root[r][c])) ** 2);
        return [sum(along.map((x, c) => x * z[c])) / Math.sqrt(M), estimate * sum(spread) / freedom];
      });
    };
    return { pairs, draw };
  }

  /** All pairs at once: better[i][j], and the first critical value of |z|. */
  function compareSimultaneously({ pairs, draw }, nModels, confidence) {
    const better = Array.from({ length: nModels }, () => new Array(nModels).fill(false));
    const z = pairs.map(({ difference, variance }) =>
      (Math.abs(difference) > 1e-12 ? difference / Math.sqrt(variance) : 0));
    const normal = normals(1);
    const statistics = Array.from({ length: DRAWS }, () => draw(normal).map(([error, variance], p) =>
      (pairs[p].variance > 1e-24 && variance > 0 ? error / Math.sqrt(variance) : 0)));
    let critical = null;
    for (;;) {
      const left = pairs.map(({ i, j }) => [!better[i][j], !better[j][i]]);
      const largest = statistics.map((row) => row.reduce((most, t, p) =>
        Math.max(most, left[p][0] ? t : 0, left[p][1] ? -t : 0), 0)).sort((a, b) => a - b);
      const at = confidence * (DRAWS - 1);
      const below = largest[Math.floor(at)];
      const value = below + (at % 1) * (largest[Math.ceil(at)] - below);
      if (critical === null) critical = value;
      const rejected = pairs.filter((_, p) =>
        (left[p][0] && z[p] > value) || (left[p][1] && -z[p] > value));
      if (!rejected.length) break;
      for (const { i, j, difference } of rejected) {
        if (difference > 0) better[i][j] = true;
        else better[j][i] = true;
      }
    }
    return { better, critical };
  }

  /** Dense ranks: one below the lowest-ranked model that is better. */
  function separationRanks(better) {
    let ranks = better.map(() => 1);
    for (let step = 0; step < better.length; step += 1) {
      ranks = ranks.map((_, i) =>
        Math.max(1, ...ranks.map((rank, j) => (better[j][i] ? rank + 1 : 1))));
    }
    return ranks;
  }

  /** Ranks with a familywise guarantee; `averages` pairs the questions, `freedom` is 0 for known sds. */
  function simultaneousRanks(models, freedom, averages, confidence) {
    const source = averages ? questionPairs(averages) : independentPairs(models, freedom);
    const { better, critical } = compareSimultaneously(source, models.length, confidence);
    return { ranks: separationRanks(better), critical };
  }

  /** Kendall's τ_b; NaN if all values of one ranking tie. */
  function kendallTauB(x, y) {
    let agree = 0;
    let left = 0;
    let right = 0;
    for (let i = 0; i < x.length; i += 1) {
      for (let j = 0; j < i; j += 1) {
        const a = Math.sign(x[i] - x[j]);
        const b = Math.sign(y[i] - y[j]);
        agree += a * b;
        left += a * a;
        right += b * b;
      }
    }
    return agree / Math.sqrt(left * right);
  }

  // -- the learned prior ---------------------------------------------------------------------

  /* p_α ~ Beta(s m, s (1 − m)), m ~ Beta(a, a) and s/(c + s) ~ Beta(a, 1), on a grid in
     y = log(m/(1 − m)) and l = log s. */
  const PRIOR_SHAPE = 0.7;
  const LOG_PRIOR_SCALE = Math.log(20);
  const DEPTH = 15;
  const COLUMNS = 17;

  /** Number of questions with counts above j, j = 0, 1, …: for Σ log Γ(a+x)/Γ(a). */
  function exceeding(counts) {
    const above = new Float64Array(Math.max(0, ...counts));
    for (const c of counts) for (let j = 0; j < c; j += 1) above[j] += 1;
    return above;
  }

  function rising(above, logA) {
    if (above.length === 0) return 0;
    const a = Math.exp(logA);
    let total = above[0] * logA;
    for (let j = 1; j < above.length; j += 1) total += above[j] * Math.log(a + j);
    return total;
  }

  /** The log density of (y, l), up to a constant: a function of l that gives one of y. */
  function hyperDensity(right, total) {
    const ups = exceeding(right);
    const downs = exceeding(right.map((c, i) => total[i] - c));
    const all = exceeding(total);
    return (l) => {
      const logSum = LOG_PRIOR_SCALE + log1pexp(l - LOG_PRIOR_SCALE); // log(c + s)
      const base = PRIOR_SHAPE * l - (PRIOR_SHAPE + 1) * logSum - rising(all, l);
      return (y) => {
        const logM = -log1pexp(-y);
        const logRest = -log1pexp(y);
        const prior = base + PRIOR_SHAPE * (logM + logRest);
        return prior + rising(ups, l + logM) + rising(downs, l + logRest);
      };
    };
  }

  const between = (low, high, n) =>
    Float64Array.from({ length: n }, (_, i) => low + ((high - low) * i) / (n - 1));

  /** The first and last index whose value is near the largest. */
  function reach(values) {
    const floor = Math.max(...values) - DEPTH;
    let first = 0;
    let last = values.length - 1;
    while (values[first] <= floor) first += 1;
    while (values[last] <= floor) last -= 1;
    return [first, last];
  }

  /** Adapt the bracket of a row to the region of non-negligible density, with a small margin. */
  function fitted(density, low, high) {
    for (let i = 0; i < 60; i += 1) {
      const nodes = between(low, high, COLUMNS);
      const [first, last] = reach(nodes.map(density));
      const width = high - low;
      const fits = first > 0 && last < COLUMNS - 1 && last - first >= 6;
      low = first === 0 ? low - width : nodes[Math.max(first - 1, 0)];
      high = last === COLUMNS - 1 ? high + width : nodes[Math.min(last + 1, COLUMNS - 1)];
      if (fits) break;
    }
    return [low, high];
  }

  /** log Σ e^v of a row times its width. */
  function logMass(values, width) {
    const top = Math.max(...values);
    return top + Math.log(sum(Array.from(values, (v) => Math.exp(v - top))) * width);
  }

  /** Interpolate linearly. */
  function interpolate(x, xs, ys) {
    let i = 1;
    while (i < xs.length - 1 && xs[i] < x) i += 1;
    const share = (x - xs[i - 1]) / (xs[i] - xs[i - 1]);
    return ys[i - 1] + share * (ys[i] - ys[i - 1]);
  }

  /** The nodes of the grid with their weights. */
  function hyperGrid(right, total) {
    const at = hyperDensity(right, total);
    const share = (sum(right) + 0.5) / (sum(total) + 1);
    const centre = Math.log(share / (1 - share));
    let logS = between(-25, 27.5, 22);
    let rows = Array.from(logS, (l) => fitted(at(l), centre - 12, centre + 12));
    for (let settled = false; !settled; ) {
      const masses = rows.map(([low, high], i) =>
        logMass(between(low, high, COLUMNS).map(at(logS[i])), high - low),
      );
      let [first, last] = reach(masses);
      first = Math.max(first - 1, 0);
      last = Math.min(last + 1, logS.length - 1);
      settled = last - first > 8;
      const n = settled ? nodesFor(logS[last] - logS[first]) : COLUMNS;
      const closer = between(logS[first], logS[last], n);
      const lows = rows.map(([low, high]) => low - 0.1 * (high - low));
      const highs = rows.map(([low, high]) => high + 0.1 * (high - low));
      rows = Array.from(closer, (l) =>
        fitted(at(l), interpolate(l, logS, lows), interpolate(l, logS, highs)),
      );
      logS = closer;
    }
    const n = nodesFor(Math.max(...rows.map(([low, high]) => high - low)));
    const grid = { m: [], s: [], weight: [] };
    let top = -Infinity;
    rows.forEach(([low, high], i) => {
      const density = at(logS[i]);
      for (const y of between(low, high, n)) {
        const value = density(y) + Math.log(high - low);
        top = Math.max(top, value);
        grid.m.push(expit(y));
        grid.s.push(Math.exp(logS[i]));
        grid.weight.push(value);
      }
    });
    const weight = grid.weight.map((v) => Math.exp(v - top));
    const whole = sum(weight);
    grid.weight = weight.map((w) => w / whole);
    return grid;
  }

  function nodesFor(width) {
    return Math.min(60, Math.max(26, Math.ceil(width / 0.6))) + 1;
  }

  /** hbayes@N, scope benchmark: μ and σ of the mean of these questions' probabilities. */
  function hbayesAtN(right, total) {
    const grid = hyperGrid(right, total);
    // questions of equal n are grouped
    const groups = new Map();
    right.forEach((c, i) => {
      const n = total[i];
      const group = groups.get(n) || { n, times: 0, right: 0, both: 0 };
      group.times += 1;
      group.right += c;
      group.both += c * (n - c);
      groups.set(n, group);
    });
    const M = right.length;
    let mean = 0;
    let square = 0;
    let strength = 0;
    let level = 0;
    grid.weight.forEach((w, i) => {
      const m = grid.m[i];
      const s = grid.s[i];
      let score = 0;
      let within = 0;
      for (const { n, times, right: c, both } of groups.values()) {
        const all = n + s;
        score += (c + times * s * m) / all;
        const product =
          both + s * (1 - m) * c + s * m * (times * n - c) + times * s * s * m * (1 - m);
        within += product / (all * all * (all + 1));
      }
      score /= M;
      mean += w * score;
      square += w * (within / (M * M) + score * score);
      level += w * m;
      strength += w * Math.log(s);
    });
    const sigma = Math.sqrt(Math.max(0, square - mean * mean));
    return { mu: mean, sigma, mean: level, strength: Math.exp(strength) };
  }

  // -- simulated models ----------------------------------------------------------------------

  /** A uniform number in (0, 1), a hash of four integers. */
  function toss(seed, model, question, trial) {
    const mix = (h) => {
      h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
      h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
      return h ^ (h >>> 16);
    };
    let h = mix((seed | 0) ^ 0x9e3779b9);
    h = mix(h ^ Math.imul(model + 1, 0x27d4eb2f));
    h = mix(h ^ Math.imul(question + 1, 0x165667b1));
    h = mix(h ^ Math.imul(trial + 1, 0x2545f491));
    return ((h >>> 0) + 0.5) / 4294967296;
  }

  /** Success probabilities of M questions: midpoint quantiles of a Beta with just this mean. */
  function mimic(mean, M, strength) {
    const at = (m) =>
      Array.from({ length: M }, (_, i) =>
        betaQuantile(strength * m, strength * (1 - m), (i + 0.5) / M),
      );
    let low = 0;
    let high = 1;
    let m = mean;
    let values = at(m);
    let miss = sum(values) / M - mean;
    let [lowMiss, highMiss] = [-mean, 1 - mean];
    // regula falsi, Illinois variant
    for (let i = 0; i < 100 && Math.abs(miss) > 1e-14; i += 1) {
      if (miss < 0) {
        [low, lowMiss] = [m, miss];
        highMiss *= 0.5;
      } else {
        [high, highMiss] = [m, miss];
        lowMiss *= 0.5;
      }
      const next = (low * highMiss - high * lowMiss) / (highMiss - lowMiss);
      if (!(next > low && next < high) || next === m) break;
      m = next;
      values = at(m);
      miss = sum(values) / M - mean;
    }
    return values;
  }

  /** Right answers of one model to each question after each trial: [trials so far][question]. */
  function runningCounts(p, trials, seed, model) {
    const counts = [p.map(() => 0)];
    for (let n = 1; n <= trials; n += 1) {
      const before = counts[n - 1];
      counts.push(p.map((probability, q) => before[q] + (toss(seed, model, q, n) < probability ? 1 : 0)));
    }
    return counts;
  }

  /** True Pass@k of known probabilities. */
  const truePassAtK = (p, k) => sum(p.map((chance) => 1 - (1 - chance) ** k)) / p.length;

  return {
    avgAtN, bayesAtN, betaInterval, betaQuantile, hbayesAtN, kendallTauB, mimic, normalCdf,
    normalQuantile, passAtK, runningCounts, separation, simultaneousRanks, toss, truePassAtK,
  };
})();

if (typeof module !== "undefined") module.exports = lmeb;
