"use strict";

/* Figures as SVG elements; their content is also available as text. */
const draw = (() => {
  const SVG_NAMESPACE = "http://www.w3.org/2000/svg";
  const DASHES = ["", "7 3", "2 3", "9 3 2 3"];
  const colour = (i) => `var(--c${i % 8})`;
  const letter = (i) => "ABCDEFGH"[i];

  function node(name, attributes = {}, text = null) {
    const element = document.createElementNS(SVG_NAMESPACE, name);
    for (const [key, value] of Object.entries(attributes)) {
      element.setAttribute(key, typeof value === "number" ? Number(value.toFixed(2)) : value);
    }
    if (text !== null) element.textContent = text;
    return element;
  }

  /** Put an empty figure into a container, with the container's width. */
  function canvas(container, height, title, description) {
    const width = Math.max(280, Math.round(container.clientWidth || 600));
    const svg = node("svg", {
      viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `${title}. ${description}`,
    });
    container.replaceChildren(svg);
    return { svg, width, add: (...content) => svg.appendChild(node(...content)) };
  }

  const path = (points) =>
    points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

  /** Consecutive points with finite values. */
  function segments(points) {
    const result = [[]];
    for (const point of points) {
      if (Number.isFinite(point[1])) result[result.length - 1].push(point);
      else if (result[result.length - 1].length) result.push([]);
    }
    return result.filter((segment) => segment.length);
  }

  const percent = (value) => `${Math.round(100 * value)}%`;

  /** A probability in percent that is never shown as certain; halves are rounded to even. */
  function probability(p) {
    if (p < 0.01) return "<1%";
    if (p > 0.99) return ">99%";
    const value = 100 * p;
    const below = Math.floor(value);
    const up = value - below > 0.5 || (value - below === 0.5 && below % 2 === 1);
    return `${up ? below + 1 : below}%`;
  }

  function shape(container, p) {
    const bins = new Array(10).fill(0);
    for (const probability of p) bins[Math.min(9, Math.floor(10 * probability))] += 1;
    const largest = Math.max(...bins);
    const description = bins.map((n, i) => `${n} from ${10 * i} to ${10 * i + 10}%`)
      .filter((_, i) => bins[i]).join(", ");
    const { add, width } = canvas(container, 78, "Questions by the middle model’s probability", description);
    const step = width / 10;
    bins.forEach((n, i) => {
      const height = (48 * n) / largest;
      add("rect", { x: i * step + 1, y: 54 - height, width: step - 2, height,
        fill: "var(--accent)", opacity: 0.75 });
    });
    add("line", { x1: 0, x2: width, y1: 54.5, y2: 54.5, stroke: "var(--line)" });
    add("text", { x: 0, y: 70, class: "soft" }, "0%");
    add("text", { x: width / 2, y: 70, class: "soft", "text-anchor": "middle" },
      "probability of a right trial");
    add("text", { x: width, y: 70, class: "soft", "text-anchor": "end" }, "100%");
  }

  /** The smallest range in steps of 10% that contains some values. */
  function extent(values) {
    const finite = values.filter(Number.isFinite);
    const low = Math.max(0, Math.floor(10 * Math.min(...finite) + 1e-9));
    const high = Math.min(10, Math.ceil(10 * Math.max(...finite) - 1e-9));
    return high > low ? [low / 10, high / 10] : [low / 10, (low + 1) / 10];
  }

  /** Round ticks of an axis, about `count` at most. */
  function ticks([low, high], count) {
    const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5].find((s) => (high - low) / s <= count);
    const result = [];
    for (let v = Math.ceil(low / step - 1e-9); v * step <= high + 1e-9; v += 1) result.push(v * step);
    return result;
  }

  /** Draw the grid of an axis of scores; return the map from scores to x. */
  function scores(board, range, left, right, top, bottom) {
    const x = (value) => left + ((right - left) * (value - range[0])) / (range[1] - range[0]);
    for (const v of ticks(range, (right - left) / 55)) {
      board.add("line", { x1: x(v), x2: x(v), y1: top, y2: bottom, stroke: "var(--line)",
        "stroke-width": 0.7 });
      board.add("text", { x: x(v), y: bottom + 17, class: "soft", "text-anchor": "middle" },
        percent(v));
    }
    return x;
  }

  function now(container, models, label) {
    const row = 38;
    const height = row * models.length + 34;
    const description = models.map((model) =>
      `${model.name}: mean ${percent(model.mu)}, ${label} ${percent(model.low)} to ` +
      `${percent(model.high)}, with the other prior ${percent(model.beside.low)} to ` +
      `${percent(model.beside.high)}, true score ${percent(model.truth)}`).join("; ");
    const board = canvas(container, height, "Posterior mean, interval and true score of every model", description);
    const { add } = board;
    const range = extent(
      models.flatMap(({ low, high, beside, truth, pass, average }) =>
        [low, high, beside.low, beside.high, truth, pass, average]));
    const x = scores(board, range, 32, board.width - 22, 4, height - 24);
    models.forEach((model, i) => {
      const y = 4 + row * (i + 0.5);
      const hue = colour(model.index);
      add("text", { x: 4, y: y + 5, "font-weight": 600 }, model.name);
      add("rect", { x: x(model.low), y: y - 6, width: Math.max(1, x(model.high) - x(model.low)),
        height: 12, rx: 6, fill: hue, opacity: 0.35 });
      const [left, right] = [x(model.beside.low).toFixed(1), x(model.beside.high).toFixed(1)];
      add("path", { d: `M${left} ${y - 13}v6M${left} ${y - 10}H${right}M${right} ${y - 13}v6`,
        fill: "none", stroke: "var(--text)", "stroke-width": 2 });
      if (Number.isFinite(model.pass)) {
        add("rect", { x: -4.5, y: -4.5, width: 9, height: 9, fill: "none", stroke: "var(--soft)",
          "stroke-width": 2, transform: `translate(${x(model.pass).toFixed(1)} ${y}) rotate(45)` });
      }
      add("line", { x1: x(model.truth), x2: x(model.truth), y1: y - 13, y2: y + 13,
        stroke: "var(--truth)", "stroke-width": 3 });
      add("circle", { cx: x(model.mu), cy: y, r: 5.5, fill: hue, stroke: "var(--ground)",
        "stroke-width": 1.5 });
      const at = x(model.average);
      add("path", { d: `M${at.toFixed(1)} ${y + 8}l5 8h-10z`, fill: "var(--text)" });
    });
  }

  /** Draw a logarithmic axis of trials; return the map from n to x. */
  function trials(board, maxTrials, left, right, bottom) {
    const x = (n) => left + ((right - left) * Math.log2(n)) / Math.log2(maxTrials);
    for (let n = 1; n <= maxTrials; n *= 2) {
      board.add("text", { x: x(n), y: bottom + 17, class: "soft", "text-anchor": "middle" }, n);
    }
    return x;
  }

  function way(container, model, maxTrials) {
    const height = Math.min(380, Math.max(260, container.clientWidth * 0.5));
    const bottom = height - 44;
    const last = model.steps[model.steps.length - 1];
    const board = canvas(container, height, `Model ${model.name} after 1 to ${last.n} trials`,
      model.steps.filter((step, i, all) => Number.isInteger(Math.log2(step.n)) || i === all.length - 1)
        .map((step) => `${step.n}: ${percent(step.mu)}, ${percent(step.low)} to ${percent(step.high)}`)
        .join("; ") + `; true score ${percent(model.truth)}`);
    const { add, width } = board;
    const range = extent([model.truth,
      ...model.steps.flatMap((step) => [step.low, step.high]),
      ...model.all.flatMap((estimate) => [estimate.pass, estimate.average])]);
    const y = (value) => bottom - ((bottom - 12) * (value - range[0])) / (range[1] - range[0]);
    for (const v of ticks(range, 8)) {
      add("line", { x1: 42, x2: width - 14, y1: y(v), y2: y(v), stroke: "var(--line)",
        "stroke-width": 0.7 });
      add("text", { x: 38, y: y(v) + 4, class: "soft", "text-anchor": "end" }, percent(v));
    }
    const x = trials(board, maxTrials, 46, width - 20, bottom);
    add("text", { x: width / 2, y: height - 6, class: "soft", "text-anchor": "middle" },
      "trials per question");
    const hue = colour(model.index);
    const band = [...model.steps.map((step) => [x(step.n), y(step.high)]),
      ...[...model.steps].reverse().map((step) => [x(step.n), y(step.low)])];
    add("path", { d: `${path(band)}Z`, fill: hue, opacity: "var(--band)" });
    const curve = (key, style) => {
      for (const segment of segments(model.all.map((estimate) => [x(estimate.n), y(estimate[key])]))) {
        if (segment.length === 1) add("circle", { cx: segment[0][0], cy: segment[0][1], r: 2.5,
          fill: style.stroke });
        add("path", { d: path(segment), fill: "none", ...style });
      }
    };
    add("line", { x1: 42, x2: width - 14, y1: y(model.truth), y2: y(model.truth),
      stroke: "var(--truth)", "stroke-width": 2.5, "stroke-dasharray": "2 4" });
    curve("pass", { stroke: "var(--soft)", "stroke-width": 2, "stroke-dasharray": "7 4" });
    curve("average", { stroke: "var(--soft)", "stroke-width": 1.3 });
    add("path", { d: path(model.steps.map((step) => [x(step.n), y(step.mu)])), fill: "none",
      stroke: hue, "stroke-width": 2.8 });
    add("circle", { cx: x(last.n), cy: y(last.mu), r: 4.5, fill: hue });
  }

  /** Every model's rank after n trials; `orders[n − 1]` is null where it is undefined. */
  function ranks(container, orders, truth, maxTrials, title) {
    const n = truth.length;
    const height = 26 * n + 48;
    const bottom = 26 * n + 10;
    const last = orders[orders.length - 1];
    const order = (of) => of.map((_, i) => i).sort((a, b) => of[a] - of[b]).map(letter).join(", ");
    const board = canvas(container, height, title,
      last ? `best first: ${order(last)}; true ranking ${order(truth)}` : "not defined yet");
    const { add, width } = board;
    const y = (rank) => 10 + 26 * (rank - 0.5);
    const x = trials(board, maxTrials, 14, width - 44, bottom);
    add("text", { x: width / 2, y: height - 6, class: "soft", "text-anchor": "middle" },
      "trials per question; true ranking on the right");
    truth.forEach((rank, i) => {
      add("text", { x: width - 20, y: y(rank) + 5, "font-weight": 600, "text-anchor": "middle",
        style: `fill:${colour(i)}` }, letter(i));
      const points = orders.map((of, t) => [x(t + 1), of ? y(of[i]) : NaN]);
      for (const segment of segments(points)) {
        add("path", { d: path(segment), fill: "none", stroke: colour(i), "stroke-width": 2.2,
          "stroke-dasharray": DASHES[i % 4], "stroke-linejoin": "round" });
        const [endX, endY] = segment[segment.length - 1];
        add("circle", { cx: endX, cy: endY, r: 8, fill: colour(i) });
        add("text", { x: endX, y: endY + 4, "text-anchor": "middle", "font-size": 11,
          "font-weight": 700, style: "fill:var(--ground)" }, letter(i));
      }
    });
  }

  function often(container, rows, level) {
    const height = 34 * rows.length + 30;
    const description = rows.map((row) =>
      `${row.name}: ${percent(row.held)}, mean width ${percent(row.width)}`).join("; ");
    const board = canvas(container, height, "Coverage of the intervals", description);
    const { add, width } = board;
    const narrow = width < 520;
    const x = scores(board, [0, 1], 74, width - (narrow ? 22 : 205), 4, height - 24);
    rows.forEach((row, i) => {
      const y = 4 + 34 * (i + 0.5);
      add("text", { x: 0, y: y + 5 }, row.name);
      add("rect", { x: x(0), y: y - 9, width: Math.max(1, x(row.held) - x(0)), height: 18, rx: 2,
        fill: "var(--accent)", opacity: 0.8 });
      const inside = narrow && row.held > 0.5;
      add("text", {
        x: narrow ? x(row.held) + (inside ? -6 : 8) : width - 175, y: y + 5,
        "text-anchor": inside ? "end" : "start", "font-weight": 600,
        ...(inside ? { style: "fill:var(--ground)" } : {}),
      }, `${percent(row.held)}${narrow ? "" : `, ${(100 * row.width).toFixed(1)} points wide`}`);
    });
    add("line", { x1: x(level), x2: x(level), y1: 0, y2: height - 24, stroke: "var(--truth)",
      "stroke-width": 2, "stroke-dasharray": "4 3" });
  }

  return { letter, now, often, percent, probability, ranks, shape, way };
})();

if (typeof module !== "undefined") module.exports = draw;
