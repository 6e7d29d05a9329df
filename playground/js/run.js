"use strict";
// One network in training: its worker, its picture, its numbers and its curves.
define("run", ["network", "unit", "scene", "plane", "chart", "theme"], ({ Network, KINDS, layout }, { rhoOf }, { show }, { picture, orderName, orderFrom }, chart, { colors }) => {
  const MOST_ROWS = 128; // of the history; beyond, every other row goes
  let script = null;
  const newWorker = () => {
    script ??= URL.createObjectURL(new Blob([scriptOf("worker")], { type: "text/javascript" }));
    return new Worker(script);
  };

  /** "4 projections", "1 unit". */
  const some = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;

  /** What a network is, in words. */
  const describe = ({ kind, units, filters }) =>
    `${some(units, `${KINDS[kind].label} unit`)}${KINDS[kind].pools ? `, ${some(units * filters, "projection")}` : ""}`;

  class Run {
    /** `tell` has ended(run), changed(run), order(run, j, p) and learn(run, j, whether). */
    constructor(tell) {
      this.tell = tell;
      this.element = document.getElementById("net-run").content.cloneNode(true).firstElementChild;
      this.worker = newWorker();
      this.worker.onmessage = ({ data }) => this.receive(data);
      this.number = 0;
      this.cache = {};
      this.latest = null;
      this.history = [];
      this.scene = null;
      this.dirty = false;
    }

    $(selector) {
      return this.element.querySelector(selector);
    }

    /** A new network on a set of points; from = {theta, steps, memory, history} continues a run. */
    start(task, set, extent, from) {
      Object.assign(this, { task, set, extent, ended: null });
      this.shape = task.shape;
      const fits = from && from.theta.length === layout(this.shape).size;
      this.from = fits ? from : null;
      this.history = fits ? (from.history ?? []).map((row) => [...row]) : [];
      this.number++;
      this.badge("");
      this.listOrders();
      this.latest = null;
      this.dirty = true;
      this.element.ariaBusy = set.y.length > 0; // until the first snapshot the old picture stays
      if (set.y.length) {
        const { theta, steps, memory } = this.from ?? {};
        this.worker.postMessage({
          type: "start", task, set: { x: set.x, y: set.y, classes: set.classes },
          from: fits ? { theta, steps, memory } : null, number: this.number,
        });
      } else this.worker.postMessage({ type: "pause" });
    }

    send(type, more = {}) {
      if (this.set?.y.length) this.worker.postMessage({ type, ...more });
    }

    receive(snapshot) {
      if (snapshot.run !== this.number) return; // of a run that was replaced
      this.latest = snapshot;
      this.ended = snapshot.ended;
      const { steps, loss, mistakes, orders } = snapshot;
      if (!(this.history.at(-1)?.[0] >= steps)) this.history.push([steps, loss, mistakes, ...orders].map(Math.fround)); // as a link keeps it
      if (this.history.length > MOST_ROWS) {
        const last = this.history.length - 1;
        this.history = this.history.filter((_, i) => i % 2 === 0 || i === last);
      }
      this.dirty = true;
      this.tell.changed(this);
      if (snapshot.ended) this.tell.ended(this);
    }

    /** What a link keeps of it. */
    saved() {
      if (!this.latest) return this.from;
      const { theta, steps, memory } = this.latest;
      return { theta, steps, memory, history: this.history };
    }

    badge(text) {
      this.$(".badge").textContent = text;
      this.$(".badge").hidden = !text;
    }

    /** A row for each order: its colour, its value, and whether it learns. */
    listOrders() {
      const { kind, units, learned, orders } = this.shape;
      const list = this.$("ul.orders");
      list.replaceChildren();
      this.$(".orders-figure").hidden = !KINDS[kind].norm;
      list.hidden = kind !== "lp";
      this.fields = [];
      if (kind !== "lp") return;
      for (let j = 0; j < units; j++) {
        const row = document.createElement("li");
        row.style.setProperty("--color", `var(--unit-${(j % 6) + 1})`);
        row.innerHTML = `<span class="dot">${j + 1}</span>
          <label>p <input type="text" inputmode="decimal" autocomplete="off" aria-label="Order of unit ${j + 1}"></label>
          <label class="check"><input type="checkbox" aria-label="Unit ${j + 1} learns its order"> learn</label>`;
        const [field, box] = row.querySelectorAll("input");
        field.value = orderName(orders[j]);
        box.checked = learned[j];
        box.disabled = orders[j] === Infinity;
        field.addEventListener("change", () => {
          const p = orderFrom(field.value);
          if (p >= 1) this.tell.order(this, j, p);
          else field.value = orderName(this.latest?.orders[j] ?? orders[j]);
        });
        box.addEventListener("change", () => this.tell.learn(this, j, box.checked));
        this.fields.push(field);
        list.append(row);
      }
    }

    /** The parameters with another order of unit j. */
    withOrder(j, p) {
      const theta = this.latest.theta.slice();
      theta[j] = rhoOf(p);
      return theta;
    }

    /** Draw what has changed since the last frame. */
    frame() {
      const size = this.$(".plane").clientWidth;
      const { latest, set, extent, cache, shape } = this;
      if (!this.dirty || !size || (set.y.length && !latest)) return;
      this.dirty = false;
      this.element.ariaBusy = false;
      const network = latest ? new Network(shape, latest.theta) : null;
      this.scene = picture({ network, set, wrong: latest?.wrong, extent, size, cache });
      show(this.scene, this.$(".plane canvas"));
      this.$("h3").textContent = describe(shape);
      const mistakes = latest ? latest.mistakes.toLocaleString("en") : "–";
      this.$(".mistakes dd").textContent = mistakes;
      this.$(".mistakes dt").textContent = latest?.mistakes === 1 ? "mistake" : "mistakes";
      this.element.classList.toggle("clean", latest?.mistakes === 0);
      this.$(".loss dd").textContent = latest ? short(latest.loss) : "–";
      this.$(".steps dd").textContent = latest ? latest.steps.toLocaleString("en") : "–";
      const words = latest ? `${describe(shape)}: ${mistakes} mistakes after ${latest.steps} steps` : "No points yet";
      this.$(".plane canvas").setAttribute("aria-label", words);
      this.fields.forEach((field, j) => {
        if (latest && document.activeElement !== field) field.value = orderName(latest.orders[j]);
      });
      // The curves hardly change from frame to frame: ten times a second is enough.
      clearTimeout(this.later);
      if (performance.now() - this.charted < 100) this.later = setTimeout(() => this.charts(), 100);
      else this.charts();
    }

    charts() {
      this.charted = performance.now();
      const draw = (selector, make, words) => {
        const canvas = this.$(selector);
        if (!canvas.clientWidth) return;
        show(make(canvas.clientWidth, canvas.clientHeight), canvas);
        canvas.setAttribute("aria-label", words);
      };
      const { history, latest } = this;
      draw(".loss-chart", (w, h) => chart.loss(history, w, h, colors().ink), `Loss over steps, now ${short(latest?.loss)}`);
      const orders = latest?.orders.map(orderName).join(", ");
      draw(".orders-chart", (w, h) => chart.orders(history, w, h), `Orders over steps, now ${orders}`);
    }

    close() {
      this.worker.terminate();
      this.element.remove();
    }
  }

  const short = (x) => (x === undefined ? "–" : x < 1e-3 ? x.toExponential(1) : String(+x.toPrecision(3)));

  return { Run, describe };
});
