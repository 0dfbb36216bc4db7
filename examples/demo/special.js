"use strict";

/* Special functions of Beta and normal distributions, to about fourteen digits. */
const special = (() => {
  /** log(1 + e^x) without overflow. */
  const log1pexp = (x) => (x > 0 ? x + Math.log1p(Math.exp(-x)) : Math.log1p(Math.exp(x)));
  const expit = (x) => (x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x)));

  /** log Γ(a) − (a − ½) log a + a − ½ log 2π: the error of Stirling's formula. */
  function stirlingTail(a) {
    let extra = 0;
    for (; a < 12; a += 1) extra += (a + 0.5) * Math.log1p(1 / a) - 1;
    const i = 1 / a;
    const s = i * i;
    return extra + i * (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s / 1188))));
  }

  /** log of x^a y^b / B(a, b), for x + y = 1; without cancellation near the mean. */
  function logPeak(a, b, x, y) {
    const n = a + b;
    const p = a / n;
    const q = b / n;
    const d = x < 0.5 ? x - p : q - y;
    const ratio = (top, mean, step) =>
      Math.abs(step) < 0.5 * mean ? Math.log1p(step / mean) : Math.log(top) - Math.log(mean);
    const tails = stirlingTail(n) - stirlingTail(a) - stirlingTail(b);
    return (
      a * ratio(x, p, d) + b * ratio(y, q, -d) + 0.5 * Math.log((a * q) / (2 * Math.PI)) + tails
    );
  }

  /** The continued fraction of the incomplete Beta function, by Lentz's method. */
  function betaFraction(a, b, x) {
    const tiny = 1e-300;
    const keep = (v) => (Math.abs(v) < tiny ? tiny : v);
    let c = 1;
    let d = 1 / keep(1 - ((a + b) * x) / (a + 1));
    let h = d;
    for (let m = 1; m < 100000; m += 1) {
      const even = (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
      d = 1 / keep(1 + even * d);
      c = keep(1 + even / c);
      h *= d * c;
      const odd = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1));
      d = 1 / keep(1 + odd * d);
      c = keep(1 + odd / c);
      const step = d * c;
      h *= step;
      if (Math.abs(step - 1) < 1e-15) break;
    }
    return h;
  }

  /** log of the probability that Beta(a, b) lies below x (y = 1 − x). */
  function logBetaBelow(a, b, x, y) {
    if (x <= 0) return -Infinity;
    if (y <= 0) return 0;
    if (x * (a + b + 2) < a + 1) {
      return logPeak(a, b, x, y) + Math.log(betaFraction(a, b, x) / a);
    }
    return Math.log1p(-Math.exp(logPeak(b, a, y, x)) * (betaFraction(b, a, y) / b));
  }

  /** The quantile of Beta(a, b) at probability u. */
  function betaQuantile(a, b, u) {
    const middle = Math.exp(logBetaBelow(a, b, a / (a + b), b / (a + b)));
    if (u > middle) return 1 - lowerQuantile(b, a, 1 - u);
    return lowerQuantile(a, b, u);
  }

  /* log F is concave in the log-odds: bracketed Newton steps. */
  function lowerQuantile(a, b, u) {
    if (u <= 0) return 0;
    const target = Math.log(u);
    let low = -740;
    let high = Math.log(a / b) + 1;
    let t = high - 1;
    for (let i = 0; i < 200; i += 1) {
      const x = expit(t);
      const y = expit(-t);
      const value = logBetaBelow(a, b, x, y);
      if (value > target) high = t;
      else low = t;
      let next = t - (value - target) * Math.exp(value - logPeak(a, b, x, y));
      if (!(next > low && next < high)) next = 0.5 * (low + high);
      if (Math.abs(next - t) < 1e-14 * Math.max(1, Math.abs(t))) return expit(next);
      t = next;
    }
    return expit(t);
  }

  /** Φ(z), the normal distribution function. */
  function normalCdf(z) {
    const x = Math.abs(z) / Math.SQRT2;
    let upper;
    if (x < 2.5) {
      let term = x;
      let sum = x;
      for (let n = 1; Math.abs(term) > 1e-17 * sum && n < 200; n += 1) {
        term *= (-x * x) / n;
        sum += term / (2 * n + 1);
      }
      upper = 0.5 - sum / Math.sqrt(Math.PI);
    } else {
      let f = 0;
      for (let n = 80; n > 0; n -= 1) f = (0.5 * n) / (x + f);
      upper = (0.5 * Math.exp(-x * x)) / ((x + f) * Math.sqrt(Math.PI));
    }
    return z > 0 ? 1 - upper : upper;
  }

  /** Φ⁻¹(p). */
  function normalQuantile(p) {
    let low = -40;
    let high = 40;
    for (let i = 0; i < 80; i += 1) {
      const middle = 0.5 * (low + high);
      if (normalCdf(middle) < p) low = middle;
      else high = middle;
    }
    return 0.5 * (low + high);
  }

  return { betaQuantile, expit, log1pexp, normalCdf, normalQuantile };
})();
