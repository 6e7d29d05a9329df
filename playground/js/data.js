"use strict";
// The data sets: {x: coordinates, two for each point, y: class numbers, classes}. Those of the paper are the
// points of `lpunits data`, of its training split, rounded to single precision as there.
define("data", ["random"], ({ Random }) => {
  // Per class: the mean, and the matrix that standard normal points are multiplied with.
  const TWO = [
    [-1.5, -0.5, 0.7, 0.3, 0.0, 0.4],
    [1.5, 0.5, 0.4, 0.0, -0.3, 0.7],
  ];
  const THREE = [
    [0.0, 2.0, 0.7, 0.0, 0.0, 0.4],
    [-1.7, -1.0, 0.4, 0.0, 0.3, 0.6],
    [1.7, -1.0, 0.4, 0.0, -0.3, 0.6],
  ];

  function gaussians(classes, count, seed) {
    const random = new Random(seed, 0);
    return fill(count, classes.length, (i) => {
      const k = i % classes.length;
      const [mx, my, a, b, c, d] = classes[k];
      const [s, t] = [random.normal(), random.normal()];
      return [mx + s * a + t * c, my + s * b + t * d, k];
    });
  }

  /** Below 1 inside of a superellipse whose order goes from 1.6 to 4 and back with the direction. */
  function curveLevel(x, y) {
    const p = 1.6 + (2.4 * (1 - Math.cos(Math.atan2(y, x) - Math.PI / 4))) / 2;
    return (Math.abs(x) ** p + Math.abs(y) ** p) ** (1 / p);
  }

  /** The mean of two Lp units, a diamond and a box, divided by 0.7. */
  function teacherLevel(x, y) {
    const unit = (p, a, b, c, d, e, f) =>
      ((Math.abs(a * x + b * y - e) ** p + Math.abs(c * x + d * y - f) ** p) / 2) ** (1 / p);
    const first = unit(1.05, 0.8, 0.5, -0.5, 0.8, 0.15, -0.1);
    return (first + unit(12, 1.1, 0.2, -0.1, 0.9, -0.2, 0.15)) / 2 / 0.7;
  }

  /** Uniform points; those too near to the curve where the level is 1 are dropped. */
  function inside(level, count, seed) {
    const random = new Random(seed, 0);
    return fill(count, 2, () => {
      for (;;) {
        const [x, y] = [3 * random.uniform() - 1.5, 3 * random.uniform() - 1.5];
        const value = level(x, y);
        if (Math.abs(value - 1) >= 0.005) return [x, y, value < 1 ? 1 : 0];
      }
    });
  }

  /** Points of a rule that is given a class and random numbers. */
  function drawn(rule, count, seed) {
    const random = new Random(seed, 1);
    return fill(count, 2, (i) => [...rule(i % 2, random), i % 2]);
  }

  function fill(count, classes, point) {
    const set = { x: new Float64Array(2 * count), y: new Uint8Array(count), classes };
    for (let i = 0; i < count; i++) {
      const [x, y, k] = point(i);
      set.x[2 * i] = Math.fround(x);
      set.x[2 * i + 1] = Math.fround(y);
      set.y[i] = k;
    }
    return set;
  }

  const turn = Math.PI;
  const RULES = {
    xor(k, random) {
      const [x, y] = [random.between(0.08, 1.3), random.between(0.08, 1.3)];
      const side = random.uniform() < 0.5 ? 1 : -1;
      return [side * x, (k ? -side : side) * y];
    },
    rings(k, random) {
      const radius = (k ? 1.15 : 0.5) + 0.09 * random.normal();
      const angle = random.between(-turn, turn);
      return [radius * Math.cos(angle), radius * Math.sin(angle)];
    },
    spirals(k, random) {
      const way = Math.sqrt(random.between(0.02, 1));
      const angle = 1.75 * turn * way + k * turn;
      const noise = () => 0.03 * random.normal();
      return [1.35 * way * Math.cos(angle) + noise(), 1.35 * way * Math.sin(angle) + noise()];
    },
    moons(k, random) {
      const angle = random.between(0, turn);
      const noise = () => 0.08 * random.normal();
      const side = k ? -1 : 1;
      return [
        0.8 * side * Math.cos(angle) - 0.4 * side + noise(),
        0.8 * side * Math.sin(angle) - 0.2 * side + noise(),
      ];
    },
  };

  /** What there is: a label, the points that it starts with, and how they are made. */
  const SETS = {
    __proto__: null,
    curve: { label: "Curve", count: 5000, make: (n, s) => inside(curveLevel, n, s) },
    teacher: { label: "Teacher", count: 5000, make: (n, s) => inside(teacherLevel, n, s) },
    "two-gaussians": { label: "Two Gaussians", count: 1000, make: (n, s) => gaussians(TWO, n, s) },
    "three-gaussians": {
      label: "Three Gaussians",
      count: 1500,
      make: (n, s) => gaussians(THREE, n, s),
    },
    xor: { label: "XOR", count: 500, make: (n, s) => drawn(RULES.xor, n, s) },
    rings: { label: "Rings", count: 500, make: (n, s) => drawn(RULES.rings, n, s) },
    spirals: { label: "Spirals", count: 500, make: (n, s) => drawn(RULES.spirals, n, s) },
    moons: { label: "Moons", count: 500, make: (n, s) => drawn(RULES.moons, n, s) },
  };
  const MOST = 5000;

  const make = (name, count, seed) => SETS[name].make(count, seed);

  /** A set of rows [x, y, class]; the classes are numbered as they are given, up to three. */
  function fromRows(rows) {
    const classes = Math.max(2, 1 + Math.max(0, ...rows.map((row) => row[2])));
    return fill(rows.length, classes, (i) => rows[i]);
  }

  /**
   * Points as CSV: x, y and a class (any text), separated by commas, semicolons, tabs or spaces. A first
   * line that is not numbers is a heading. Throws an Error that names the line.
   */
  function parseCsv(text) {
    const names = [];
    const rows = [];
    text.split(/\r?\n/).forEach((line, index) => {
      if (!line.trim()) return;
      const cells = line.trim().split(/\s*[,;\t]\s*|\s+/);
      const [x, y] = [Number(cells[0]), Number(cells[1])];
      if (!rows.length && !index && !Number.isFinite(x)) return;
      if (cells.length < 3 || cells[0] === "" || cells[1] === "" || !isFinite(x) || !isFinite(y))
        throw new Error(`Line ${index + 1} must be two numbers and a class, got “${line.trim()}”.`);
      if (!names.includes(cells[2])) names.push(cells[2]);
      if (names.length > 3)
        throw new Error(`Line ${index + 1} has a fourth class, “${cells[2]}”; at most three are shown.`);
      rows.push([x, y, names.indexOf(cells[2])]);
    });
    if (names.length < 2) throw new Error("The points must be of two or three classes.");
    if (rows.length > MOST) throw new Error(`At most ${MOST} points are shown, got ${rows.length}.`);
    // Classes that are numbers keep their order, whichever comes first.
    if (names.every((name) => ["0", "1", "2"].includes(name)))
      for (const row of rows) row[2] = [...names].sort().indexOf(names[row[2]]);
    return rows;
  }

  /** Left, right, bottom, top: a square around the points with some room. */
  function extent(set) {
    let [left, right, bottom, top] = [Infinity, -Infinity, Infinity, -Infinity];
    for (let i = 0; i < set.y.length; i++) {
      left = Math.min(left, set.x[2 * i]);
      right = Math.max(right, set.x[2 * i]);
      bottom = Math.min(bottom, set.x[2 * i + 1]);
      top = Math.max(top, set.x[2 * i + 1]);
    }
    if (!(right >= left)) return [-1.6, 1.6, -1.6, 1.6];
    const reach = Math.max(right - left, top - bottom, 1e-6) * 0.54;
    const [x, y] = [(left + right) / 2, (bottom + top) / 2];
    return [x - reach, x + reach, y - reach, y + reach];
  }

  return { SETS, MOST, make, fromRows, parseCsv, extent };
});
