"use strict";
// The first view: one unit, shaped by hand.
define("unitView", ["unit", "geometry", "scene", "theme", "plane"], (unit, geometry, { Scene, show, mapping }, { colors, rgb }, { orderName, orderFrom }) => {
  const EXTENT = [-2.4, 2.4, -2.4, 2.4];
  const CELLS = 72;
  const LEVELS = [0.25, 0.5, 0.75, 1.25, 1.5, 2, 2.5, 3, 4];
  const STEP = 0.05; // of a handle, by an arrow key

  // The slider is even in 1/p from 1 to infinity, so that an order and its dual are mirror images around 2.
  const placeOf = (p) => (p >= 1 ? 1 - 1 / p : (p - 1) / 2);
  const orderAt = (s) => (s >= 1 ? Infinity : s >= 0 ? +(1 / (1 - s)).toPrecision(12) : 1 + 2 * s);
  const MARKS = [0.2, 1, 2, 4, Infinity];

  /** What the unit is called at an order, and what its level sets look like. */
  function nameOf(p) {
    if (p < 1) return ["Not a norm", "The corners point inwards: the triangle inequality fails."];
    if (p === 1) return ["Mean", "The mean of the absolute projections: a diamond."];
    if (p < 2) return ["Between mean and RMS", "A diamond with rounded sides."];
    if (p === 2) return ["RMS", "The root mean square, as in energy pooling: an ellipse."];
    if (p < 3.5) return ["Between RMS and max", "An ellipse that fills its box; networks start near 3."];
    if (p < 20) return ["Between RMS and max", "A box with round corners."];
    if (p < Infinity) return ["Almost the max", "A box whose corners are hardly round."];
    return ["Max, a maxout", "The largest |projection|: a maxout of all projections and their negatives. A box."];
  }

  function mount(state, changed) {
    const $ = (id) => document.getElementById(id);
    const plane = $("unit-plane");
    const canvas = plane.querySelector("canvas");
    const field = document.createElement("canvas");
    field.width = field.height = CELLS + 1;
    let hover = null;
    let scene = null;
    let sweeping = 0;
    let size = 0;
    const it = () => state.unit;
    const asUnit = (p = it().p) => ({
      p,
      filters: it().filters,
      offsets: it().filters.map(([a, b]) => a * it().center[0] + b * it().center[1]),
    });

    function paintField(shape, theme) {
      const context = field.getContext("2d");
      const image = context.createImageData(CELLS + 1, CELLS + 1);
      const [paper, tint] = [rgb(theme.plane), rgb(theme.accent)];
      for (let k = 0; k <= CELLS; k++)
        for (let i = 0; i <= CELLS; i++) {
          const x = EXTENT[0] + ((EXTENT[1] - EXTENT[0]) * i) / CELLS;
          const y = EXTENT[3] - ((EXTENT[3] - EXTENT[2]) * k) / CELLS;
          const u = geometry.value(shape, x, y);
          const share = 0.52 * (1 - Math.exp(-u / 1.6));
          const pixel = 4 * (k * (CELLS + 1) + i);
          for (let d = 0; d < 3; d++) image.data[pixel + d] = paper[d] + share * (tint[d] - paper[d]);
          image.data[pixel + 3] = 255;
        }
      context.putImageData(image, 0, 0);
    }

    function drawGradient(map, shape, theme) {
      const n = shape.filters.length;
      const z = new Float64Array(n);
      const slopes = new Float64Array(n + 1);
      for (let x = -2.1; x < 2.2; x += 0.42)
        for (let y = -2.1; y < 2.2; y += 0.42) {
          shape.filters.forEach(([a, b], i) => (z[i] = a * x + b * y - shape.offsets[i]));
          unit.pool(z, 0, n, shape.p, slopes, n);
          let [gx, gy] = [0, 0];
          shape.filters.forEach(([a, b], i) => {
            gx += slopes[i] * a;
            gy += slopes[i] * b;
          });
          const long = Math.min(1, 0.6 / Math.hypot(gx, gy)) * 0.36; // below p = 1 some are huge
          const [px, py] = [map.x(x), map.y(y)];
          scene.arrow(px, py, map.x(x + long * gx), map.y(y + long * gy), {
            color: theme.ink, width: 1.3, head: 6, opacity: 0.55,
          });
        }
    }

    function draw() {
      const theme = colors();
      size = plane.clientWidth;
      if (!size) return;
      scene = new Scene(size, size);
      const map = mapping(EXTENT, size, size);
      const shape = asUnit();
      paintField(shape, theme);
      scene.image(field);
      for (const level of LEVELS)
        for (const line of geometry.levelSet(shape, level, EXTENT))
          scene.line(map.line(line), { color: theme.accent, width: 1, opacity: 0.45 });
      if (it().gradient) drawGradient(map, shape, theme);
      const q = unit.dual(it().p);
      if (it().dual && q >= 1)
        for (const line of geometry.levelSet(asUnit(q), 1, EXTENT))
          scene.line(map.line(line), { color: theme.units[1], width: 2.5, dash: [8, 6] });
      for (const line of geometry.levelSet(shape, 1, EXTENT))
        scene.line(map.line(line), { color: theme.accent, width: 3.5 });
      if (hover) {
        const level = geometry.value(shape, ...hover);
        for (const line of geometry.levelSet(shape, level, EXTENT))
          scene.line(map.line(line), { color: theme.ink, width: 1.6 });
        scene.marks([map.x(hover[0]), map.y(hover[1])], { shape: "disc", radius: 4, color: theme.ink });
      }
      const [cx, cy] = it().center.map((c, i) => (i ? map.y(c) : map.x(c)));
      it().filters.forEach(([a, b], i) => {
        const [tx, ty] = [map.x(it().center[0] + a), map.y(it().center[1] + b)];
        scene.arrow(cx, cy, tx, ty, { color: theme.ink, width: 3, head: 14 });
        const far = Math.hypot(tx - cx, ty - cy) || 1;
        const [lx, ly] = [tx + (20 * (tx - cx)) / far, ty + (20 * (ty - cy)) / far];
        scene.text(`w${"₁₂₃₄"[i]}`, lx, ly, { color: theme.ink, size: 15, halo: theme.plane });
      });
      scene.marks([cx, cy], { shape: "disc", radius: 7, color: theme.ink });
      scene.marks([cx, cy], { shape: "disc", radius: 3, color: theme.plane });
      show(scene, canvas);
      placeHandles(map);
    }

    // Buttons over the picture, so that what can be dragged can also be reached by keyboard and read aloud.
    const handles = [];
    function placeHandles(map) {
      while (handles.length > it().filters.length + 1) handles.pop().remove();
      while (handles.length < it().filters.length + 1) handles.push(makeHandle(handles.length));
      handles.forEach((handle, i) => {
        const [a, b] = i ? it().filters[i - 1] : [0, 0];
        handle.style.left = `${map.x(it().center[0] + a)}px`;
        handle.style.top = `${map.y(it().center[1] + b)}px`;
        const [x, y] = (i ? it().filters[i - 1] : it().center).map((t) => t.toFixed(2));
        handle.setAttribute("aria-label", `${i ? `Filter ${i}` : "Centre"} at ${x}, ${y}; move with arrow keys`);
      });
    }

    function makeHandle(i) {
      const handle = document.createElement("button");
      handle.type = "button";
      handle.className = "handle";
      handle.addEventListener("pointerdown", (event) => {
        handle.setPointerCapture(event.pointerId);
        hover = null;
      });
      handle.addEventListener("pointermove", (event) => {
        if (handle.hasPointerCapture(event.pointerId)) move(i, at(event));
      });
      handle.addEventListener("keydown", (event) => {
        const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
        if (!way) return;
        event.preventDefault();
        const here = i ? it().filters[i - 1].map((w, d) => w + it().center[d]) : it().center;
        move(i, here.map((x, d) => x + STEP * way[d]));
      });
      plane.append(handle);
      return handle;
    }

    const at = (event) => {
      const box = plane.getBoundingClientRect();
      return mapping(EXTENT, size, size).back(event.clientX - box.left, event.clientY - box.top);
    };

    function move(i, [x, y]) {
      const inside = (t) => Math.round(Math.min(Math.max(t, -2.3), 2.3) * 1e4) / 1e4;
      const place = [inside(x), inside(y)];
      if (i) it().filters[i - 1] = place.map((t, d) => Math.round((t - it().center[d]) * 1e4) / 1e4);
      else it().center = place;
      update();
    }

    function readout() {
      const shape = asUnit();
      if (!hover) {
        $("unit-readout").textContent = "Colour is the response u. The bold line is u = 1. Point anywhere to read it.";
        return;
      }
      const z = shape.filters.map(([a, b], i) => (a * hover[0] + b * hover[1] - shape.offsets[i]).toFixed(2));
      const u = geometry.value(shape, ...hover).toFixed(3);
      $("unit-readout").textContent = `u = ${u} at (${hover.map((x) => x.toFixed(2)).join(", ")}), projections ${z.join(", ")}`;
    }

    /** Everything that shows the state, but for the link. */
    function refresh() {
      const { p, filters } = it();
      if (document.activeElement !== $("order-text")) $("order-text").value = orderName(p);
      $("order-slider").value = placeOf(p);
      $("order-slider").setAttribute("aria-valuetext", `p = ${p === Infinity ? "infinity" : orderName(p)}`);
      const [name, about] = nameOf(p);
      $("order-name").querySelector("strong").textContent = name;
      $("order-name").querySelector("span").textContent = about;
      const n = filters.length;
      const q = unit.dual(p);
      const power = p === Infinity ? "∞" : orderName(p);
      $("unit-formula").innerHTML =
        p === Infinity
          ? `<i>u</i> = max<sub>i</sub> |<b>w</b><sub>i</sub>·<b>x</b> − c<sub>i</sub>|`
          : `<i>u</i> = ( <span class="over">1/${n}</span> Σ |<b>w</b><sub>i</sub>·<b>x</b> − c<sub>i</sub>|<sup>${power}</sup> )<sup>1/${power}</sup>`;
      $("show-gradient").checked = it().gradient;
      $("show-dual").checked = it().dual;
      $("dual-note").hidden = !it().dual;
      $("dual-note").textContent =
        p < 1 ? "Below p = 1 there is no dual norm." : `Dashed: the dual order, p/(p − 1) = ${orderName(q)}. The slopes of the unit live there.`;
      $("unit-filters").value = n;
      $("order-marks").style.setProperty("--dual", it().dual && q >= 1 ? (placeOf(q) + 0.4) / 1.4 : -1);
      canvas.setAttribute("aria-label", `The response of a unit with ${n} filters and p = ${power}, over the plane. ${about}`);
      readout();
      draw();
    }

    function update() {
      refresh();
      changed();
    }

    function setOrder(p) {
      it().p = p;
      update();
    }

    function stopSweep() {
      cancelAnimationFrame(sweeping);
      sweeping = 0;
      $("sweep").textContent = "▶ Sweep";
    }

    /** From diamond to box and back to where it was, once. */
    function sweep(seconds = 7) {
      if (sweeping) return stopSweep();
      const [begin, home] = [performance.now(), placeOf(it().p)];
      $("sweep").textContent = "■ Stop";
      const frame = (now) => {
        const t = Math.min((now - begin) / 1000 / seconds, 1);
        // Down to 1, up to infinity, back home: by a cosine, which rests at the ends.
        const legs = [home, 0, 1, home];
        const leg = Math.min(Math.floor(t * 3), 2);
        const ease = (1 - Math.cos(Math.PI * (t * 3 - leg))) / 2;
        it().p = orderAt(legs[leg] + (legs[leg + 1] - legs[leg]) * ease);
        if (t < 1) {
          refresh();
          sweeping = requestAnimationFrame(frame);
        } else {
          stopSweep();
          setOrder(orderAt(home));
        }
      };
      sweeping = requestAnimationFrame(frame);
    }

    $("order-marks").innerHTML =
      MARKS.map((p) => `<span style="--at:${(placeOf(p) + 0.4) / 1.4}">${orderName(p)}</span>`).join("") + "<i></i>";
    let dragging = false;
    $("order-slider").addEventListener("pointerdown", () => (dragging = true));
    $("order-slider").addEventListener("pointerup", () => (dragging = false));
    $("order-slider").addEventListener("input", (event) => {
      stopSweep();
      const s = Number(event.target.value);
      // Under a hand the named orders hold on a little; by keyboard each step counts.
      const near = dragging && MARKS.map(placeOf).find((mark) => Math.abs(mark - s) < 0.014);
      setOrder(orderAt(near || near === 0 ? near : s));
    });
    $("order-text").addEventListener("change", (event) => {
      stopSweep();
      const p = orderFrom(event.target.value);
      if (p >= 0.2) it().p = p;
      event.target.value = orderName(it().p);
      update();
    });
    $("sweep").addEventListener("click", () => sweep());
    $("show-gradient").addEventListener("change", (event) => {
      it().gradient = event.target.checked;
      update();
    });
    $("show-dual").addEventListener("change", (event) => {
      it().dual = event.target.checked;
      update();
    });
    $("unit-filters").addEventListener("change", (event) => {
      const n = Math.min(Math.max(Math.round(event.target.value) || 2, 1), 4);
      const spare = [[1, 0], [0, 1], [0.7, 0.7], [-0.7, 0.7]];
      it().filters = Array.from({ length: n }, (_, i) => it().filters[i] ?? spare[i]);
      update();
    });
    $("unit-reset").addEventListener("click", () => {
      stopSweep();
      Object.assign(it(), { p: 2, filters: [[1, 0], [0, 1]], center: [0, 0], gradient: false, dual: false });
      update();
    });
    plane.addEventListener("pointermove", (event) => {
      if (event.target !== canvas) return;
      hover = at(event);
      readout();
      draw();
    });
    plane.addEventListener("pointerleave", () => {
      hover = null;
      readout();
      draw();
    });

    return {
      refresh,
      sweep,
      stopSweep,
      pictures: () => [{ scene, title: `An Lp unit, p = ${orderName(it().p)}`, color: colors().ink }],
    };
  }

  return { mount };
});
