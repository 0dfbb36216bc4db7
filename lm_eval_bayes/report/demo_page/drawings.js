"use strict";

/* Drawings as SVG elements. Whatever they show stands in words or in the table as well. */
const draw = (() => {
  const SPACE = "http://www.w3.org/2000/svg";
  const DASHES = ["", "7 3", "2 3", "9 3 2 3"];
  const colour = (i) => `var(--c${i % 8})`;
  const letter = (i) => "ABCDEFGH"[i];

  function node(name, attributes = {}, text = null) {
    const made = document.createElementNS(SPACE, name);
    for (const [key, value] of Object.entries(attributes)) {
      made.setAttribute(key, typeof value === "number" ? Number(value.toFixed(2)) : value);
    }
    if (text !== null) made.textContent = text;
    return made;
  }

  /** Put an empty drawing into its place, as wide as the place is. */
  function canvas(place, height, title, description) {
    const width = Math.max(280, Math.round(place.clientWidth || 600));
    const svg = node("svg", {
      viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `${title}. ${description}`,
    });
    place.replaceChildren(svg);
    return { svg, width, add: (...given) => svg.appendChild(node(...given)) };
  }

  const path = (points) =>
    points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

  /** Runs of points that have a value. */
  function pieces(points) {
    const found = [[]];
    for (const point of points) {
      if (Number.isFinite(point[1])) found[found.length - 1].push(point);
      else if (found[found.length - 1].length) found.push([]);
    }
    return found.filter((piece) => piece.length);
  }

  const percent = (value) => `${Math.round(100 * value)}%`;

  function shape(place, p) {
    const bins = new Array(10).fill(0);
    for (const chance of p) bins[Math.min(9, Math.floor(10 * chance))] += 1;
    const most = Math.max(...bins);
    const told = bins.map((n, i) => `${n} from ${10 * i} to ${10 * i + 10}%`)
      .filter((_, i) => bins[i]).join(", ");
    const { add, width } = canvas(place, 78, "Questions by the middle model’s chance", told);
    const step = width / 10;
    bins.forEach((n, i) => {
      const height = (48 * n) / most;
      add("rect", { x: i * step + 1, y: 54 - height, width: step - 2, height,
        fill: "var(--accent)", opacity: 0.75 });
    });
    add("line", { x1: 0, x2: width, y1: 54.5, y2: 54.5, stroke: "var(--line)" });
    add("text", { x: 0, y: 70, class: "soft" }, "0%");
    add("text", { x: width / 2, y: 70, class: "soft", "text-anchor": "middle" },
      "chance of a right trial");
    add("text", { x: width, y: 70, class: "soft", "text-anchor": "end" }, "100%");
  }

  /** The part of [0, 1], in steps of 10%, that holds some values. */
  function extent(values) {
    const known = values.filter(Number.isFinite);
    const low = Math.max(0, Math.floor(10 * Math.min(...known) + 1e-9));
    const high = Math.min(10, Math.ceil(10 * Math.max(...known) - 1e-9));
    return high > low ? [low / 10, high / 10] : [low / 10, (low + 1) / 10];
  }

  /** Round values to mark on an axis, at most about so many. */
  function marks([low, high], most) {
    const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5].find((one) => (high - low) / one <= most);
    const found = [];
    for (let v = Math.ceil(low / step - 1e-9); v * step <= high + 1e-9; v += 1) found.push(v * step);
    return found;
  }

  /** A scale from scores to x, its grid drawn. */
  function scores(board, range, left, right, top, bottom) {
    const x = (value) => left + ((right - left) * (value - range[0])) / (range[1] - range[0]);
    for (const v of marks(range, (right - left) / 55)) {
      board.add("line", { x1: x(v), x2: x(v), y1: top, y2: bottom, stroke: "var(--line)",
        "stroke-width": 0.7 });
      board.add("text", { x: x(v), y: bottom + 17, class: "soft", "text-anchor": "middle" },
        percent(v));
    }
    return x;
  }

  function now(place, models, label) {
    const row = 38;
    const height = row * models.length + 34;
    const told = models.map((one) =>
      `${one.name}: mean ${percent(one.mu)}, ${label} ${percent(one.low)} to ` +
      `${percent(one.high)}, truth ${percent(one.truth)}`).join("; ");
    const board = canvas(place, height, "Each model’s mean, interval and true score", told);
    const { add } = board;
    const range = extent(models.flatMap((one) => [one.low, one.high, one.truth, one.pass, one.average]));
    const x = scores(board, range, 32, board.width - 22, 4, height - 24);
    models.forEach((one, i) => {
      const y = 4 + row * (i + 0.5);
      const hue = colour(one.index);
      add("text", { x: 4, y: y + 5, "font-weight": 600 }, one.name);
      add("rect", { x: x(one.low), y: y - 6, width: Math.max(1, x(one.high) - x(one.low)),
        height: 12, rx: 6, fill: hue, opacity: 0.35 });
      if (Number.isFinite(one.pass)) {
        add("rect", { x: -4.5, y: -4.5, width: 9, height: 9, fill: "none", stroke: "var(--soft)",
          "stroke-width": 2, transform: `translate(${x(one.pass).toFixed(1)} ${y}) rotate(45)` });
      }
      add("line", { x1: x(one.truth), x2: x(one.truth), y1: y - 13, y2: y + 13,
        stroke: "var(--truth)", "stroke-width": 3 });
      add("circle", { cx: x(one.mu), cy: y, r: 5.5, fill: hue, stroke: "var(--ground)",
        "stroke-width": 1.5 });
      const at = x(one.average);
      add("path", { d: `M${at.toFixed(1)} ${y + 8}l5 8h-10z`, fill: "var(--text)" });
    });
  }

  /** The axis of trials: 1, 2, 4, … in even steps. */
  function trials(board, most, left, right, bottom) {
    const x = (n) => left + ((right - left) * Math.log2(n)) / Math.log2(most);
    for (let n = 1; n <= most; n *= 2) {
      board.add("text", { x: x(n), y: bottom + 17, class: "soft", "text-anchor": "middle" }, n);
    }
    return x;
  }

  function way(place, model, most) {
    const height = Math.min(380, Math.max(260, place.clientWidth * 0.5));
    const bottom = height - 44;
    const last = model.steps[model.steps.length - 1];
    const board = canvas(place, height, `Model ${model.name} after 1 to ${last.n} trials`,
      model.steps.filter((one, i, all) => Number.isInteger(Math.log2(one.n)) || i === all.length - 1)
        .map((one) => `${one.n}: ${percent(one.mu)}, ${percent(one.low)} to ${percent(one.high)}`)
        .join("; ") + `; truth ${percent(model.truth)}`);
    const { add, width } = board;
    const range = extent([model.truth,
      ...model.steps.flatMap((one) => [one.low, one.high]),
      ...model.all.flatMap((one) => [one.pass, one.average])]);
    const y = (value) => bottom - ((bottom - 12) * (value - range[0])) / (range[1] - range[0]);
    for (const v of marks(range, 8)) {
      add("line", { x1: 42, x2: width - 14, y1: y(v), y2: y(v), stroke: "var(--line)",
        "stroke-width": 0.7 });
      add("text", { x: 38, y: y(v) + 4, class: "soft", "text-anchor": "end" }, percent(v));
    }
    const x = trials(board, most, 46, width - 20, bottom);
    add("text", { x: width / 2, y: height - 6, class: "soft", "text-anchor": "middle" },
      "trials a question");
    const hue = colour(model.index);
    const band = [...model.steps.map((one) => [x(one.n), y(one.high)]),
      ...[...model.steps].reverse().map((one) => [x(one.n), y(one.low)])];
    add("path", { d: `${path(band)}Z`, fill: hue, opacity: "var(--band)" });
    const curve = (key, style) => {
      for (const piece of pieces(model.all.map((one) => [x(one.n), y(one[key])]))) {
        if (piece.length === 1) add("circle", { cx: piece[0][0], cy: piece[0][1], r: 2.5,
          fill: style.stroke });
        add("path", { d: path(piece), fill: "none", ...style });
      }
    };
    add("line", { x1: 42, x2: width - 14, y1: y(model.truth), y2: y(model.truth),
      stroke: "var(--truth)", "stroke-width": 2.5, "stroke-dasharray": "2 4" });
    curve("pass", { stroke: "var(--soft)", "stroke-width": 2, "stroke-dasharray": "7 4" });
    curve("average", { stroke: "var(--soft)", "stroke-width": 1.3 });
    add("path", { d: path(model.steps.map((one) => [x(one.n), y(one.mu)])), fill: "none",
      stroke: hue, "stroke-width": 2.8 });
    add("circle", { cx: x(last.n), cy: y(last.mu), r: 4.5, fill: hue });
  }

  /** Every model's place after each number of trials; `places[n − 1]` is null where undefined. */
  function ranks(place, places, truth, most, title) {
    const n = truth.length;
    const height = 26 * n + 48;
    const bottom = 26 * n + 10;
    const last = places[places.length - 1];
    const order = (of) => of.map((_, i) => i).sort((a, b) => of[a] - of[b]).map(letter).join(", ");
    const board = canvas(place, height, title,
      last ? `best first: ${order(last)}; in truth ${order(truth)}` : "not defined yet");
    const { add, width } = board;
    const y = (standing) => 10 + 26 * (standing - 0.5);
    const x = trials(board, most, 14, width - 44, bottom);
    add("text", { x: width / 2, y: height - 6, class: "soft", "text-anchor": "middle" },
      "trials a question; at the right the true order");
    truth.forEach((standing, i) => {
      add("text", { x: width - 20, y: y(standing) + 5, "font-weight": 600, "text-anchor": "middle",
        style: `fill:${colour(i)}` }, letter(i));
      const points = places.map((of, t) => [x(t + 1), of ? y(of[i]) : NaN]);
      for (const piece of pieces(points)) {
        add("path", { d: path(piece), fill: "none", stroke: colour(i), "stroke-width": 2.2,
          "stroke-dasharray": DASHES[i % 4], "stroke-linejoin": "round" });
        const [endX, endY] = piece[piece.length - 1];
        add("circle", { cx: endX, cy: endY, r: 8, fill: colour(i) });
        add("text", { x: endX, y: endY + 4, "text-anchor": "middle", "font-size": 11,
          "font-weight": 700, style: "fill:var(--ground)" }, letter(i));
      }
    });
  }

  function often(place, rows, level) {
    const height = 34 * rows.length + 30;
    const told = rows.map((one) =>
      `${one.name}: ${percent(one.held)}, mean width ${percent(one.width)}`).join("; ");
    const board = canvas(place, height, "How often the interval held the truth", told);
    const { add, width } = board;
    const narrow = width < 520;
    const x = scores(board, [0, 1], 74, width - (narrow ? 22 : 205), 4, height - 24);
    rows.forEach((one, i) => {
      const y = 4 + 34 * (i + 0.5);
      add("text", { x: 0, y: y + 5 }, one.name);
      add("rect", { x: x(0), y: y - 9, width: Math.max(1, x(one.held) - x(0)), height: 18, rx: 2,
        fill: "var(--accent)", opacity: 0.8 });
      const inside = narrow && one.held > 0.5;
      add("text", {
        x: narrow ? x(one.held) + (inside ? -6 : 8) : width - 175, y: y + 5,
        "text-anchor": inside ? "end" : "start", "font-weight": 600,
        ...(inside ? { style: "fill:var(--ground)" } : {}),
      }, `${percent(one.held)}${narrow ? "" : `, ${(100 * one.width).toFixed(1)} points wide`}`);
    });
    add("line", { x1: x(level), x2: x(level), y1: 0, y2: height - 24, stroke: "var(--truth)",
      "stroke-width": 2, "stroke-dasharray": "4 3" });
  }

  return { letter, now, often, percent, ranks, shape, way };
})();
