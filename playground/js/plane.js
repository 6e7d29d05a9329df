"use strict";
// The plane of a network: class regions as colour, points, mistakes, the boundary, and every unit's superellipse.
define("plane", ["scene", "geometry", "theme"], ({ Scene, mapping }, geometry, { colors, rgb }) => {
  const CELLS = 64; // of the grid that colours and boundary are computed on
  const SHAPES = ["disc", "cross", "triangle"];

  /** Class scores on the corners of the grid, row by row from the bottom. */
  function gridScores(network, [left, right, bottom, top]) {
    const row = CELLS + 1;
    const outputs = network.places.outputs;
    const scores = new Float64Array(row * row * outputs);
    network.prepare();
    for (let k = 0; k < row; k++)
      for (let i = 0; i < row; i++) {
        const x = left + ((right - left) * i) / CELLS;
        scores.set(network.score(x, bottom + ((top - bottom) * k) / CELLS), (k * row + i) * outputs);
      }
    return scores;
  }

  /** The lines between classes: for each pair, the parts where no third class is ahead of both. */
  function boundary(network, extent, scores) {
    const outputs = network.places.outputs;
    if (outputs === 1) return geometry.contours((x, y) => network.score(x, y)[0], extent, CELLS, scores);
    const lines = [];
    const ahead = (a, b) => (x, y) => {
      const found = network.score(x, y);
      return found[a] - found[b];
    };
    for (const [a, b, c] of [[0, 1, 2], [1, 2, 0], [2, 0, 1]]) {
      const values = Float64Array.from({ length: scores.length / 3 }, (_, i) => scores[3 * i + a] - scores[3 * i + b]);
      for (const line of geometry.contours(ahead(a, b), extent, CELLS, values))
        lines.push(...kept(line, ahead(a, c)));
    }
    return lines;
  }

  /** The parts of a line where f is positive; the ends are where it is 0. */
  function kept(line, f) {
    const parts = [];
    let part = null;
    let [x0, y0, f0] = [0, 0, NaN];
    for (let i = 0; i < line.length; i += 2) {
      const [x, y] = [line[i], line[i + 1]];
      const value = f(x, y);
      const t = f0 / (f0 - value);
      const cut = [x0 + t * (x - x0), y0 + t * (y - y0)];
      if (value > 0) {
        if (!part) parts.push((part = f0 <= 0 ? cut : []));
        part.push(x, y);
      } else if (part) {
        part.push(...cut);
        part = null;
      }
      [x0, y0, f0] = [x, y, value];
    }
    return parts;
  }

  /** The classes as colour: the surer the network, the stronger. */
  function paintField(scores, outputs, theme) {
    const field = document.createElement("canvas"); // a new one: scenes outlive the next painting
    field.width = field.height = CELLS + 1;
    const context = field.getContext("2d");
    const image = context.createImageData(CELLS + 1, CELLS + 1);
    const paper = rgb(theme.plane);
    const tints = theme.classes.map(rgb);
    const share = [0, 0, 0];
    for (let k = 0; k <= CELLS; k++)
      for (let i = 0; i <= CELLS; i++) {
        const at = (k * (CELLS + 1) + i) * outputs;
        if (outputs === 1) {
          share[1] = 1 / (1 + Math.exp(-scores[at]));
          share[0] = 1 - share[1];
        } else {
          const top = Math.max(scores[at], scores[at + 1], scores[at + 2]);
          for (let c = 0; c < 3; c++) share[c] = Math.exp(scores[at + c] - top);
          const sum = share[0] + share[1] + share[2];
          for (let c = 0; c < 3; c++) share[c] /= sum;
        }
        const pixel = 4 * ((CELLS - k) * (CELLS + 1) + i);
        for (let d = 0; d < 3; d++) {
          let value = 0.76 * paper[d];
          for (let c = 0; c < 3; c++) value += 0.24 * share[c] * tints[c][d];
          image.data[pixel + d] = value;
        }
        image.data[pixel + 3] = 255;
        share[2] = 0;
      }
    context.putImageData(image, 0, 0);
    return field;
  }

  function drawPoints(scene, set, map, theme) {
    const many = set.y.length > 1500;
    const radius = Math.max(many ? 0.8 : 1.6, (scene.width / 620) * (many ? 1.5 : 2.6));
    for (let k = 0; k < set.classes; k++) {
      const points = [];
      for (let i = 0; i < set.y.length; i++)
        if (set.y[i] === k) points.push(map.x(set.x[2 * i]), map.y(set.x[2 * i + 1]));
      const shape = SHAPES[k];
      const size = shape === "cross" ? radius * 0.95 : radius;
      const style = { shape, radius: size, color: theme.classes[k], width: many ? 1 : 1.5 };
      scene.marks(points, { ...style, opacity: many ? 0.62 : 0.85 });
    }
  }

  /** Rings around the mistakes, the fainter the more there are. */
  function drawMistakes(scene, set, wrong, map, theme) {
    const rings = [];
    for (let i = 0; i < set.y.length; i++)
      if (wrong?.[i]) rings.push(map.x(set.x[2 * i]), map.y(set.x[2 * i + 1]));
    const many = Math.min(Math.max(Math.log10(rings.length / 120) / 1.3, 0), 1);
    const style = { radius: (6 - 3.2 * many) * Math.min(1, 0.4 + scene.width / 800), width: 1.4 - 0.7 * many, opacity: 1 - 0.7 * many };
    scene.marks(rings, { shape: "ring", color: theme.ink, ...style });
  }

  /** A unit's superellipse, centre, and axes as far as the superellipse; returns its label. */
  function drawUnit(scene, unit, number, edge, extent, map, color, theme) {
    const { center, axes } = geometry.frame(unit);
    const level = geometry.levelOf(unit, edge, center);
    const lines = geometry.levelSet(unit, level, extent);
    for (const line of lines) scene.line(map.line(line), { color, width: 2.25, dash: [7, 5] });
    const [cx, cy] = [map.x(center[0]), map.y(center[1])];
    if (lines.length)
      for (const axis of axes)
        for (const side of [-1, 1]) {
          if (!(Math.hypot(...axis) > 0)) continue;
          const way = [side * axis[0], side * axis[1]];
          const t = geometry.reach(unit, center, way, level);
          const tip = [map.x(center[0] + t * way[0]), map.y(center[1] + t * way[1])];
          scene.line([cx, cy, ...tip], { color, width: 1.25, opacity: 0.8 });
        }
    scene.marks([cx, cy], { shape: "disc", radius: 6.5, color: theme.plane });
    scene.marks([cx, cy], { shape: "disc", radius: 5, color });
    return () => drawLabel(scene, lines.map(map.line), unit, number, color, theme);
  }

  function drawLabel(scene, lines, unit, number, color, theme) {
    const place = labelPlace(lines, scene, WAYS[(number - 1) % 6]);
    if (!place) return;
    const words = scene.width < 300 ? `${number}` : `${number}: p = ${orderName(unit.p)}`;
    const half = Math.max(3.4 * words.length - 4, 1);
    const [x, y] = place;
    scene.line([x - half, y, x + half, y], { color: theme.plane, width: 25, cap: "round" });
    scene.line([x - half, y, x + half, y], { color, width: 22, cap: "round" });
    scene.text(words, x, y + 0.5, { color: theme.plane, size: 12.5, weight: 700 });
  }

  // Labels go to different sides of their shapes, so that those of similar units do not meet.
  const WAYS = [[0.3, -1], [-0.3, 1], [1, 0.2], [-1, -0.2], [1, -1], [-1, 1]];

  /** The point of the lines in view that is farthest in a direction, or none. */
  function labelPlace(lines, { width, height }, [dx, dy]) {
    let best = null;
    for (const line of lines)
      for (let i = 0; i < line.length; i += 2) {
        const [x, y] = [line[i], line[i + 1]];
        const seen = x > 48 && x < width - 48 && y > 18 && y < height - 18;
        if (seen && (!best || dx * x + dy * y > dx * best[0] + dy * best[1])) best = [x, y];
      }
    return best;
  }

  /** An order as it is written in pictures. */
  const orderName = (p) => (p === Infinity || p > 1e6 ? "∞" : p >= 100 ? p.toFixed(0) : String(+p.toPrecision(3)));

  /** The order that was typed; NaN if it is none. */
  const orderFrom = (text) =>
    /^(∞|inf|infinity)$/i.test(text.trim()) ? Infinity : Number(text.replace(",", "."));

  /** The whole picture of a network on its data; `wrong` marks the mistakes, `cache` keeps the points' bitmap. */
  function picture({ network, set, wrong, extent, size, cache }) {
    const theme = colors();
    const scene = new Scene(size, size);
    const map = mapping(extent, size, size);
    let edge = [];
    if (network) {
      const scores = gridScores(network, extent);
      scene.image(paintField(scores, network.places.outputs, theme));
      edge = boundary(network, extent, scores);
    } else scene.line([0, 0, size, 0, size, size, 0, size, 0, 0], { fill: theme.plane });
    const key = [theme.key, size, set.stamp, extent.join(), devicePixelRatio].join();
    scene.kept(cache, key, devicePixelRatio || 1, (inner) => drawPoints(inner, set, map, theme));
    if (!network) return scene;
    drawMistakes(scene, set, wrong, map, theme);
    for (const line of edge) scene.line(map.line(line), { color: theme.ink, width: 2.5 });
    geometry
      .unitsOf(network)
      .map((unit, j) => drawUnit(scene, unit, j + 1, edge, extent, map, theme.units[j % 6], theme))
      .forEach((label) => label()); // above all shapes
    return scene;
  }

  return { picture, orderName, orderFrom };
});
