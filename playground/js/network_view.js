"use strict";
// The second and third views: a network in training, and two of them side by side.
define("networkView", ["network", "data", "state", "run", "ownPoints", "exporting", "theme"], ({ KINDS }, data, { net, RATES }, { Run, describe }, ownPoints, { pytorch }, { colors }) => {
  const WATCH = { natural: 10, adam: 120, sgd: 120 }; // steps a second, to watch

  const ENDS = {
    clean: "No mistake is left.",
    diverged: "Diverged: try a lower rate.",
    stalled: "No way down from here.",
  };

  function mount(state, changed) {
    const $ = (id) => document.getElementById(id);
    const runs = [];
    let set = null;
    let extent = [-1.6, 1.6, -1.6, 1.6];
    let playing = false;
    let winner = null;
    let stamp = 0;

    const rivals = () => (state.view === "race" ? 2 : 1);
    const task = (i) => ({
      shape: { ...state.nets[i], classes: set.classes },
      optimiser: state.optimiser,
      rate: state.rate,
      orderRate: state.orderRate,
      seed: state.seed,
    });
    const pace = () => (state.pace === "full" ? Infinity : WATCH[state.optimiser]);

    function makeSet() {
      const { name, count, seed, rows } = state.data;
      set = name === "own" ? data.fromRows(rows) : data.make(name, count, seed);
      set.stamp = ++stamp;
      return set;
    }

    /** Runs for the present view; with `from` they continue from state.runs. */
    function begin(from = false) {
      pause();
      winner = null;
      while (runs.length > rivals()) runs.pop().close();
      while (runs.length < rivals()) {
        const run = new Run(tell);
        runs.push(run);
        $("arena").append(run.element);
        points.attach(run.element.querySelector(".plane"));
      }
      $("arena").classList.toggle("two", rivals() === 2);
      runs.forEach((run, i) => {
        if (!from) state.runs[i] = null;
        run.start(task(i), set, extent, state.runs[i]);
      });
      refresh();
    }

    function renew() {
      makeSet();
      if (state.data.name !== "own" || !set.y.length) extent = data.extent(set);
      begin();
      changed();
    }

    const points = ownPoints.mount({
      active: () => state.data.name === "own",
      rows: () => state.data.rows,
      extent: () => extent,
      setRows(rows, fit = false) {
        const before = set.classes;
        state.data.rows = rows;
        makeSet();
        if (fit) extent = data.extent(set);
        keepRuns();
        begin(!fit && before === set.classes);
        changed();
      },
    });

    function keepRuns() {
      runs.forEach((run, i) => (state.runs[i] = run.saved()));
    }

    const tell = {
      changed() {
        if (!playing) {
          keepRuns();
          changed();
        }
        schedule();
      },
      ended(run) {
        if (run.ended === "clean" && rivals() === 2 && !winner) {
          winner = run;
          run.badge(`first, ${run.latest.steps} steps`);
        }
        if (runs.every((each) => each.ended)) stopped();
        status();
      },
      order(run, j, p) {
        const i = runs.indexOf(run);
        state.nets[i].orders[j] = p;
        const theta = run.latest ? run.withOrder(j, p) : null;
        keepRuns();
        if (theta) state.runs[i] = { ...state.runs[i], theta, memory: null };
        begin(true);
        changed();
      },
      learn(run, j, whether) {
        const i = runs.indexOf(run);
        state.nets[i].learned[j] = whether;
        keepRuns();
        if (state.runs[i]) state.runs[i].memory = null; // it is of other parameters
        begin(true);
        changed();
      },
    };

    // Snapshots come as fast as the worker makes them; the page draws the latest, once a frame.
    let scheduled = false;
    function schedule() {
      if (scheduled) return;
      scheduled = true;
      requestAnimationFrame(() => {
        scheduled = false;
        runs.forEach((run) => run.frame());
        status();
      });
    }

    function play() {
      if (!set.y.length) return;
      playing = true;
      runs.forEach((run) => {
        run.ended = null;
        run.send("play", { pace: pace() });
      });
      refreshTransport();
    }

    function pause() {
      if (!playing) return;
      runs.forEach((run) => run.send("pause"));
      stopped();
    }

    function stopped() {
      playing = false;
      keepRuns();
      refreshTransport();
      changed();
    }

    function refreshTransport() {
      $("play").textContent = playing ? "❚❚ Pause" : "▶ Play";
      $("play").disabled = $("step").disabled = !set?.y.length;
      status();
    }

    function status() {
      const [first] = runs;
      let text = "";
      if (!set?.y.length) text = "Draw some points, or paste them.";
      else if (playing) text = runs.map((run) => `${Math.round(run.latest?.speed ?? 0)} steps/s`).join(" · ");
      else if (!first?.latest?.steps) text = "Press Play.";
      else {
        const words = runs.map((run) => (run.latest?.mistakes === 0 ? ENDS.clean : (ENDS[run.ended] ?? "")));
        text = rivals() === 1 ? words[0] : words.map((word, i) => word && `${"AB"[i]}: ${word}`).join(" ");
      }
      if ($("status").textContent !== text) $("status").textContent = text;
    }

    const lead = () =>
      state.view === "race"
        ? "The same points and the same seed: which kind draws the boundary with so few projections?"
        : "Each unit bends its own norm: the dashed shapes. The solid line is the boundary, rings are mistakes.";

    /** Everything that shows the state, but for the link. */
    function refresh() {
      const race = state.view === "race";
      const own = state.data.name === "own";
      const words = own ? "your points" : `the ${data.SETS[state.data.name].label.toLowerCase()}`;
      $("network-title").textContent = race ? "Who needs fewer projections?" : `${describe(state.nets[0]).split(",")[0]} on ${words.replace("gaussians", "Gaussians").replace("xor", "XOR")}`;
      $("network-lead").textContent = lead();
      $("data-name").value = state.data.name;
      $("data-count").value = state.data.count;
      $("data-seed").value = state.data.seed;
      document.querySelectorAll(".sampled").forEach((each) => (each.hidden = own));
      document.querySelector(".own").hidden = !own;
      $("optimiser").value = state.optimiser;
      $("rate").value = state.rate;
      $("order-rate").value = state.orderRate;
      document.querySelectorAll(".rated").forEach((each) => (each.hidden = state.optimiser === "natural"));
      $("seed").value = state.seed;
      $("pace").value = state.pace;
      refreshNets();
      runs.forEach((run) => {
        const plane = run.element.querySelector(".plane");
        plane.classList.toggle("drawing", own);
        if (own) {
          plane.tabIndex = 0;
          plane.setAttribute("role", "application");
          plane.setAttribute("aria-label", "Plane to draw points in: arrow keys move, Enter puts a point");
        } else for (const name of ["tabindex", "role", "aria-label"]) plane.removeAttribute(name);
        run.dirty = true;
      });
      refreshTransport();
      schedule();
    }

    function refreshNets() {
      const holder = $("nets");
      while (holder.children.length > rivals()) holder.lastElementChild.remove();
      while (holder.children.length < rivals()) holder.append(netControls(holder.children.length));
      [...holder.children].forEach((block, i) => {
        const { kind, units, filters } = state.nets[i];
        block.querySelector("legend").textContent = rivals() === 2 ? `${"AB"[i]}: units` : "Units";
        block.querySelector(".kind").value = kind;
        block.querySelector(".units").value = units;
        block.querySelector(".filters").value = filters;
        block.querySelector(".pooled").hidden = !KINDS[kind].pools;
      });
    }

    function netControls(i) {
      const block = $("net-controls").content.cloneNode(true).firstElementChild;
      const field = (name) => block.querySelector(`.${name}`);
      for (const [kind, { label }] of Object.entries(KINDS)) field("kind").append(new Option(label, kind));
      const remake = (kind, units, filters) => {
        const old = state.nets[i];
        const made = net(kind, bounded(units, 1, 16, 2), bounded(filters, 1, 6, 2));
        made.orders = made.orders.map((p, j) => old.orders[j] ?? p);
        made.learned = made.learned.map((yes, j) => old.learned[j] ?? yes);
        state.nets[i] = made;
        renew();
      };
      field("kind").addEventListener("change", ({ target }) => {
        // Another kind keeps the number of projections, so that a change of kind is a fair one.
        const { kind, units, filters } = state.nets[i];
        const pools = KINDS[target.value].pools;
        if (pools === KINDS[kind].pools) remake(target.value, units, filters);
        else if (pools) remake(target.value, Math.max(1, Math.round(units / 2)), 2);
        else remake(target.value, units * filters, 1);
      });
      field("units").addEventListener("change", ({ target }) => remake(state.nets[i].kind, target.value, state.nets[i].filters));
      field("filters").addEventListener("change", ({ target }) => remake(state.nets[i].kind, state.nets[i].units, target.value));
      return block;
    }

    const bounded = (value, low, high, otherwise) =>
      Number.isFinite(+value) && value !== "" ? Math.min(Math.max(+value, low), high) : otherwise;
    const whole = (...rest) => Math.round(bounded(...rest));

    for (const [name, { label }] of Object.entries(data.SETS)) $("data-name").append(new Option(label, name));
    $("data-name").append(new Option("Your own points", "own"));
    $("data-name").addEventListener("change", ({ target }) => {
      if (target.value === "own" && !state.data.rows.length) extent = [-1.6, 1.6, -1.6, 1.6];
      state.data.name = target.value;
      if (target.value !== "own") state.data.count = data.SETS[target.value].count;
      renew();
    });
    $("data-count").addEventListener("change", ({ target }) => {
      state.data.count = whole(target.value, 10, data.MOST, state.data.count);
      renew();
    });
    $("data-seed").addEventListener("change", ({ target }) => {
      state.data.seed = whole(target.value, 0, 99999, state.data.seed);
      renew();
    });
    $("seed").addEventListener("change", ({ target }) => {
      state.seed = whole(target.value, 0, 99999, state.seed);
      renew();
    });
    $("optimiser").addEventListener("change", ({ target }) => {
      state.optimiser = target.value;
      state.rate = RATES[target.value];
      keepRuns();
      for (const run of state.runs) if (run) run.memory = null;
      begin(true);
      changed();
    });
    const tune = (name, id, most) =>
      $(id).addEventListener("change", ({ target }) => {
        state[name] = bounded(target.value, 0, most, state[name]);
        target.value = state[name];
        runs.forEach((run, i) => run.send("tune", { task: task(i) }));
        changed();
      });
    tune("rate", "rate", 100);
    tune("orderRate", "order-rate", 1000);
    $("pace").addEventListener("change", ({ target }) => {
      state.pace = target.value;
      if (playing) play();
      changed();
    });
    $("controls").addEventListener("submit", (event) => event.preventDefault());
    $("play").addEventListener("click", () => (playing ? pause() : play()));
    $("step").addEventListener("click", () => {
      pause();
      runs.forEach((run) => run.send("step"));
    });
    $("restart").addEventListener("click", () => renew());

    return {
      /** Show the state as it is: after a link was opened, or the view was changed. */
      open(from) {
        makeSet();
        extent = data.extent(set);
        begin(from);
      },
      pause,
      resize() {
        runs.forEach((run) => (run.dirty = true));
        schedule();
      },
      isPlaying: () => playing,
      keepRuns,
      runs,
      pictures: () =>
        runs.filter((run) => run.scene).map((run) => ({
          scene: run.scene,
          title: run.element.querySelector(".plane canvas").getAttribute("aria-label"),
          color: colors().ink,
        })),
      code: () =>
        runs.filter((run) => run.latest).map((run) => {
          const { theta, orders } = run.latest;
          const { optimiser, rate, orderRate } = state;
          return pytorch({ shape: run.shape, theta: [...theta], orders, optimiser, rate, orderRate });
        }).join("\n\n"),
    };
  }

  return { mount };
});
