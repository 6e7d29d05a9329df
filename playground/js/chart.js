"use strict";
// The live curves: the loss on a logarithmic scale, and the orders on the scale of the slider, where 1/p is even.
define("chart", ["scene", "theme"], ({ Scene }, { colors }) => {
  const LEFT = 34;

  function frame(width, height, ticks, steps) {
    const theme = colors();
    const scene = new Scene(width, height);
    const box = { left: LEFT, right: width - 8, top: 8, bottom: height - 20 };
    for (const [place, label] of ticks) {
      const y = box.bottom - place * (box.bottom - box.top);
      scene.line([box.left, y, box.right, y], { color: theme.faint, width: 1 });
      scene.text(label, box.left - 6, y, { color: theme.soft, size: 11, weight: 400, align: "right" });
    }
    const end = steps.toLocaleString("en");
    scene.text("0", box.left, height - 8, { color: theme.soft, size: 11, weight: 400, align: "left" });
    scene.text(`${end} steps`, box.right, height - 8, { color: theme.soft, size: 11, weight: 400, align: "right" });
    return { scene, box, theme };
  }

  function curve(scene, box, steps, values, last, style) {
    const points = [];
    for (let i = 0; i < steps.length; i++) {
      const y = box.bottom - Math.min(Math.max(values[i], 0), 1) * (box.bottom - box.top);
      points.push(box.left + (steps[i] / Math.max(last, 1)) * (box.right - box.left), y);
    }
    if (points.length === 2) points.push(points[0] + 1, points[1]);
    scene.line(points, style);
    scene.marks(points.slice(-2), { shape: "disc", radius: 3, color: style.color });
  }

  /** Rows of history are [step, loss, mistakes, orders ...]. */
  function loss(history, width, height, color) {
    const found = history.map((row) => row[1]).filter((x) => x > 0 && Number.isFinite(x));
    const low = Math.floor(Math.log10(Math.min(0.1, ...found)));
    const high = Math.max(0, Math.ceil(Math.log10(Math.max(...found, 0.1))));
    const place = (x) => (Math.log10(Math.max(x, 1e-300)) - low) / (high - low);
    const ticks = [];
    const every = Math.ceil((high - low) / 4);
    for (let e = high; e >= low; e -= every) ticks.push([place(10 ** e), e >= -2 ? String(10 ** e) : `1e${e}`]);
    const last = history.at(-1)?.[0] ?? 0;
    const { scene, box } = frame(width, height, ticks, last);
    const rows = history.filter((row) => Number.isFinite(row[1]));
    curve(scene, box, rows.map((row) => row[0]), rows.map((row) => place(row[1])), last, { color, width: 2 });
    return scene;
  }

  function orders(history, width, height) {
    const place = (p) => 1 - 1 / p;
    const ticks = [1, 1.5, 2, 4, Infinity].map((p) => [place(p), p === Infinity ? "∞" : String(p)]);
    const last = history.at(-1)?.[0] ?? 0;
    const { scene, box, theme } = frame(width, height, ticks, last);
    const steps = history.map((row) => row[0]);
    for (let j = 3; j < (history[0]?.length ?? 0); j++) {
      const style = { color: theme.units[(j - 3) % 6], width: 2 };
      curve(scene, box, steps, history.map((row) => place(row[j])), last, style);
    }
    return scene;
  }

  return { loss, orders };
});
