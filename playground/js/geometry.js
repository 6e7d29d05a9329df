"use strict";
// What units look like in the plane: lpunits.geometry in the browser. A unit is {filters: [[a, b], ...], offsets, p};
// a line is a flat list of coordinates x, y, x, y, ...
define("geometry", ["unit"], ({ pool, orderOf }) => {
  const THIN = 1e-9; // parallel, up to rounding: how thin the filters may be, relative to their length
  const scratch = new Float64Array(64);

  function value({ filters, offsets, p }, x, y) {
    for (let i = 0; i < filters.length; i++)
      scratch[i] = filters[i][0] * x + filters[i][1] * y - offsets[i];
    return pool(scratch, 0, filters.length, p, null, 0);
  }

  /** The units of a network that have a shape: of the kinds Lp and L2. */
  function unitsOf(network) {
    const { kind, units, filters } = network.shape;
    if (kind !== "lp" && kind !== "l2") return [];
    const { theta, places } = network;
    const each = Array.from({ length: filters }, (_, i) => i);
    return Array.from({ length: units }, (_, j) => ({
      p: orderOf(theta[j]),
      filters: each.map((i) => {
        const at = places.weight + 2 * (i * units + j);
        return [theta[at], theta[at + 1]];
      }),
      offsets: each.map((i) => theta[places.shift + i * units + j]),
    }));
  }

  /**
   * Where a unit is lowest, and a vector for each filter: along it only that projection changes (the columns of
   * the pseudo-inverse). `across` is set if the filters are all parallel: the shape is then a strip.
   */
  function frame(unit) {
    const { filters, offsets, p } = unit;
    let [a, b, d, minors] = [0, 0, 0, 0];
    filters.forEach(([x, y], i) => {
      a += x * x;
      b += x * y;
      d += y * y;
      for (let k = 0; k < i; k++) minors += (x * filters[k][1] - y * filters[k][0]) ** 2;
    });
    const large = (a + d) / 2 + Math.hypot((a - d) / 2, b); // the squares of the singular values of the filters
    const small = large ? minors / large : 0;
    const turn = Math.atan2(2 * b, a - d) / 2;
    const first = [Math.cos(turn), Math.sin(turn)];
    if (small <= THIN ** 2 * large) {
      const axes = filters.map(([x, y]) => (large ? [x / large, y / large] : [0, 0]));
      const start = combine(axes, offsets);
      const center = large ? lowest(unit, start, [scaled(first, large)]) : start;
      return { center, axes, across: large ? first : null, flat: true };
    }
    let axes;
    if (filters.length === 2) {
      const [[s, t], [u, v]] = filters;
      const det = s * v - t * u;
      axes = [
        [v / det, -u / det],
        [-t / det, s / det],
      ];
    } else axes = filters.map(([x, y]) => [(d * x - b * y) / minors, (a * y - b * x) / minors]);
    const start = combine(axes, offsets);
    const basis = [scaled(first, large), scaled([-first[1], first[0]], small)];
    const center = filters.length === 2 || p === 2 || p < 1 ? start : lowest(unit, start, basis);
    return { center, axes, basis, flat: false };
  }

  const scaled = ([x, y], square) => [x / Math.sqrt(square), y / Math.sqrt(square)];
  const combine = (vectors, weights) =>
    vectors.reduce((sum, v, i) => [sum[0] + weights[i] * v[0], sum[1] + weights[i] * v[1]], [0, 0]);

  /** The minimum of a convex unit from the least-squares centre: sections along one direction, or nested along two. */
  function lowest(unit, start, basis) {
    const best = value(unit, ...start);
    const size = Math.max(...unit.offsets.map(Math.abs));
    if (best <= 1e-12 * size) return start;
    const far = 2 * best * unit.filters.length ** 1.5;
    const at = (s, t) => combine([start, ...basis], [1, s, t]);
    if (basis.length === 1) return at(section((s) => value(unit, ...at(s, 0)), far)[0], 0);
    const inner = (s) => section((t) => value(unit, ...at(s, t)), far);
    const [s] = section((s_) => inner(s_)[1], far);
    return at(s, inner(s)[0]);
  }

  /** Where a convex function of one number is lowest between -far and far, by golden sections, and its value there. */
  function section(f, far) {
    const golden = (Math.sqrt(5) - 1) / 2;
    let [low, high] = [-far, far];
    let [s, t] = [high - golden * (high - low), low + golden * (high - low)];
    let [fs, ft] = [f(s), f(t)];
    for (let k = 0; k < 60; k++) {
      if (fs <= ft) {
        [high, t, ft] = [t, s, fs];
        s = high - golden * (high - low);
        fs = f(s);
      } else {
        [low, s, fs] = [s, t, ft];
        t = low + golden * (high - low);
        ft = f(t);
      }
    }
    return fs <= ft ? [s, fs] : [t, ft];
  }

  /** How far from the centre, in units of a direction, a convex unit reaches the level: bisection to the last digit. */
  function reach(unit, [cx, cy], [dx, dy], level) {
    let [near, far] = [0, 1];
    while (value(unit, cx + far * dx, cy + far * dy) < level) {
      [near, far] = [far, 2 * far];
      if (far > 1e12) return far;
    }
    for (;;) {
      const middle = (near + far) / 2;
      if (middle <= near || middle >= far) return far;
      if (value(unit, cx + middle * dx, cy + middle * dy) < level) near = middle;
      else far = middle;
    }
  }

  /**
   * Where a unit has the value `level`: a list of lines, closed ones end where they start. Two filters have a closed
   * form, z = (level N^(1/p)) (cos^(2/p), sin^(2/p)); others are met by rays from the centre. Below p = 1 a unit of
   * more filters is not convex, and the lines are traced on a grid over `extent`, with vertices on the curve.
   */
  function levelSet(unit, level, extent, points = 240) {
    const { center, axes, across, basis, flat } = frame(unit);
    if (!(value(unit, ...center) < level)) return [];
    const [cx, cy] = center;
    if (flat) {
      if (!across) return [];
      const long = 4 * Math.max(extent[1] - extent[0], extent[3] - extent[2]) + Math.hypot(cx, cy);
      return [1, -1].map((side) => {
        const way = [side * across[0], side * across[1]];
        const t = reach(unit, center, way, level);
        const [x, y] = [cx + t * way[0], cy + t * way[1]];
        return [x - long * way[1], y + long * way[0], x + long * way[1], y - long * way[0]];
      });
    }
    const { p, filters } = unit;
    if (filters.length > 2 && p < 1)
      return contours((x, y) => value(unit, x, y) - level, extent, 96);
    const line = [];
    const radius = p === Infinity ? level : level * filters.length ** (1 / p);
    for (let k = 0; k <= points; k++) {
      const angle = (2 * Math.PI * (k % points)) / points;
      // Exact at the corners, where a cosine of rounded pi/2 would not be 0.
      const c = k % (points / 2) === points / 4 ? 0 : Math.cos(angle);
      const s = k % (points / 2) === 0 ? 0 : Math.sin(angle);
      if (filters.length === 2) {
        const largest = Math.max(Math.abs(c), Math.abs(s));
        const bend = (t) =>
          radius * Math.sign(t) * (p === Infinity ? Math.abs(t) / largest : Math.abs(t) ** (2 / p));
        const [u, v] = [bend(c), bend(s)];
        line.push(cx + u * axes[0][0] + v * axes[1][0], cy + u * axes[0][1] + v * axes[1][1]);
      } else {
        const way = combine(basis, [c, s]);
        const t = reach(unit, center, way, level);
        line.push(cx + t * way[0], cy + t * way[1]);
      }
    }
    return [line];
  }

  /** Where f is 0, from its signs on a grid; `values` may hold what f is there, row by row from the bottom. */
  function contours(f, [left, right, bottom, top], cells, values = null) {
    const [dx, dy] = [(right - left) / cells, (top - bottom) / cells];
    const row = cells + 1;
    const at = (i, k) => [left + i * dx, bottom + k * dy];
    if (!values) {
      values = new Float64Array(row * row);
      for (let k = 0; k < row; k++) for (let i = 0; i < row; i++) values[k * row + i] = f(...at(i, k));
    }
    const corners = new Map(); // of an edge, the vertex on it
    const links = new Map(); // of an edge, the edges that a line goes on to
    const vertex = (i, k, upward) => {
      const edge = 2 * (k * row + i) + (upward ? 1 : 0);
      if (!corners.has(edge)) {
        const other = upward ? values[(k + 1) * row + i] : values[k * row + i + 1];
        const t = root((s) => f(...at(i + (upward ? 0 : s), k + (upward ? s : 0))), values[k * row + i], other);
        corners.set(edge, at(i + (upward ? 0 : t), k + (upward ? t : 0)));
        links.set(edge, []);
      }
      return edge;
    };
    const join = (a, b) => {
      links.get(a).push(b);
      links.get(b).push(a);
    };
    for (let k = 0; k < cells; k++)
      for (let i = 0; i < cells; i++) {
        const [a, b] = [values[k * row + i] > 0, values[k * row + i + 1] > 0];
        const [d, c] = [values[(k + 1) * row + i] > 0, values[(k + 1) * row + i + 1] > 0];
        if (a === b && b === c && c === d) continue;
        const crossed = [];
        if (a !== b) crossed.push(vertex(i, k, false));
        if (b !== c) crossed.push(vertex(i + 1, k, true));
        if (c !== d) crossed.push(vertex(i, k + 1, false));
        if (d !== a) crossed.push(vertex(i, k, true));
        if (crossed.length === 2) join(...crossed);
        else if (f(...at(i + 0.5, k + 0.5)) > 0 === a) {
          join(crossed[0], crossed[1]); // a saddle whose middle is like the first corner
          join(crossed[2], crossed[3]);
        } else {
          join(crossed[0], crossed[3]);
          join(crossed[1], crossed[2]);
        }
      }
    return chains(corners, links);
  }

  /** The place in [0, 1] where f, known at both ends, is 0: regula falsi with Illinois' rule. */
  function root(f, first, last) {
    let [a, b, fa, fb] = [0, 1, first, last];
    for (let k = 0; k < 12 && Math.abs(b - a) > 1e-12; k++) {
      const t = a + ((b - a) * fa) / (fa - fb);
      const ft = f(t);
      if (ft === 0) return t;
      if (ft > 0 !== fb > 0) [a, fa] = [b, fb];
      else fa /= 2;
      [b, fb] = [t, ft];
    }
    return b;
  }

  /** Lines out of linked vertices: open ones first, from an end to the other, then the closed ones. */
  function chains(corners, links) {
    const lines = [];
    const trace = (from) => {
      const line = [...corners.get(from)];
      let [here, next] = [from, links.get(from).pop()];
      while (next !== undefined) {
        const ways = links.get(next);
        ways.splice(ways.indexOf(here), 1);
        line.push(...corners.get(next));
        [here, next] = [next, ways.pop()];
      }
      lines.push(line);
    };
    for (const [edge, ways] of links) if (ways.length === 1) trace(edge);
    for (const [edge, ways] of links) if (ways.length) trace(edge);
    return lines;
  }

  const median = (list) => {
    const sorted = Float64Array.from(list).sort();
    const half = sorted.length >> 1;
    return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  };

  /** The level at which a unit is shown: its median value on the boundary. */
  function levelOf(unit, boundary, center) {
    const found = [];
    for (const line of boundary)
      for (let i = 0; i < line.length; i += 2) found.push(value(unit, line[i], line[i + 1]));
    return found.length ? median(found) : 2 * value(unit, ...center) + 1;
  }

  return { value, unitsOf, frame, reach, levelSet, contours, levelOf };
});
