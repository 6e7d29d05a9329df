"use strict";
// The state of the page as an address. Numbers that are seen are text, vectors base64 of their bytes.
define("state", ["network", "data"], ({ KINDS, layout }, { SETS, MOST }) => {
  const RATES = { __proto__: null, natural: 0.01, adam: 0.02, sgd: 0.3 };

  const net = (kind, units, filters = 2) => ({
    kind,
    units,
    filters: KINDS[kind].pools ? filters : 1,
    orders: Array(units).fill(3),
    learned: Array(units).fill(true),
  });

  /** What the page opens with. */
  const fresh = () => ({
    view: "unit",
    unit: { p: 2, filters: [[1, 0], [0, 1]], center: [0, 0], gradient: false, dual: false },
    data: { name: "curve", count: 5000, seed: 0, rows: [] },
    nets: [net("lp", 2), net("relu", 4)],
    optimiser: "natural",
    rate: RATES.natural,
    orderRate: 5,
    seed: 1,
    pace: "watch",
    runs: [null, null], // of each net: {theta, steps, memory, history}
  });

  const number = (value) => (value === Infinity ? "inf" : String(value));
  const parse = (text) => (text === "inf" ? Infinity : Number(text));
  const within = (value, low, high, otherwise) =>
    Number.isFinite(value) ? Math.min(Math.max(value, low), high) : otherwise;

  function toBase64(array) {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    let text = "";
    for (const byte of bytes) text += String.fromCharCode(byte);
    return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  }

  function fromBase64(text, Type) {
    const plain = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(plain, (letter) => letter.charCodeAt(0));
    return new Type(bytes.buffer, 0, Math.floor(bytes.length / Type.BYTES_PER_ELEMENT));
  }

  /** kind:units:filters:orders, an order that is fixed with a "!" behind it. */
  const writeNet = ({ kind, units, filters, orders, learned }) =>
    [kind, units, filters, orders.map((p, j) => number(p) + (learned[j] ? "" : "!")).join(",")].join(":");

  function readNet(text, otherwise) {
    const [kind, units, filters, orders = ""] = text.split(":");
    if (!KINDS[kind]) return otherwise;
    const made = net(kind, within(Math.round(units), 1, 16, 2), within(Math.round(filters), 1, 6, 2));
    orders.split(",").slice(0, made.units).forEach((word, j) => {
      const p = parse(word.replace("!", ""));
      made.orders[j] = p >= 1 ? p : 3;
      made.learned[j] = !word.endsWith("!");
    });
    return made;
  }

  // What optimisers remember, as one vector: its numbers first.
  const MEMORY = {
    natural: { numbers: ["damping", "since"], vectors: ["direction"] },
    adam: { numbers: ["steps"], vectors: ["mean", "square"] },
    sgd: { numbers: [], vectors: ["velocity"] },
  };

  function packMemory(optimiser, memory) {
    const { numbers, vectors } = MEMORY[optimiser];
    return [...numbers.map((name) => memory[name]), ...vectors.flatMap((name) => [...(memory[name] ?? [])])];
  }

  function unpackMemory(optimiser, values) {
    const { numbers, vectors } = MEMORY[optimiser];
    const memory = Object.fromEntries(numbers.map((name, i) => [name, values[i]]));
    const size = (values.length - numbers.length) / vectors.length;
    vectors.forEach((name, i) => {
      const from = numbers.length + i * size;
      memory[name] = size ? Float64Array.from(values.slice(from, from + size)) : null;
    });
    return memory;
  }

  /** The address behind the #. */
  function write(state) {
    const { unit, data } = state;
    const words = [["view", state.view]];
    const put = (name, value) => words.push([name, value]);
    if (state.view === "unit") {
      put("p", number(unit.p));
      put("w", unit.filters.flat().map((x) => +x.toFixed(4)).join(","));
      put("c", unit.center.map((x) => +x.toFixed(4)).join(","));
      put("show", [unit.gradient && "gradient", unit.dual && "dual"].filter(Boolean).join("+") || "none");
    } else {
      put("data", data.name);
      if (data.name === "own") {
        put("xy", toBase64(Float32Array.from(data.rows.flatMap(([x, y]) => [x, y]))));
        put("class", data.rows.map((row) => row[2]).join(""));
      } else {
        put("points", data.count);
        put("draw", data.seed);
      }
      put("by", state.optimiser);
      put("rate", number(state.rate));
      put("orders", number(state.orderRate));
      put("seed", state.seed);
      put("pace", state.pace);
      state.nets.slice(0, state.view === "race" ? 2 : 1).forEach((each, i) => {
        put(`net${i}`, writeNet(each));
        const run = state.runs[i];
        if (!run) return;
        put(`steps${i}`, run.steps);
        put(`theta${i}`, toBase64(run.theta));
        if (run.memory) {
          const packed = packMemory(state.optimiser, run.memory);
          if (packed.length) put(`memory${i}`, toBase64(Float64Array.from(packed)));
        }
        if (run.history?.length) put(`history${i}`, toBase64(Float32Array.from(run.history.flat())));
      });
    }
    return words.map(([name, value]) => `${name}=${encodeURIComponent(value).replace(/%(2C|3A|2B)/g, decodeURIComponent)}`).join("&");
  }

  /** The state of an address; what is missing or makes no sense is as the page opens. */
  function read(text) {
    try {
      return decode(text);
    } catch {
      return fresh(); // letters that are no address at all
    }
  }

  function decode(text) {
    const state = fresh();
    const words = new Map(
      text.replace(/^#/, "").split("&").map((pair) => {
        const at = pair.indexOf("=");
        return [pair.slice(0, at), decodeURIComponent(pair.slice(at + 1))];
      }),
    );
    const has = (name) => words.has(name);
    const get = (name) => words.get(name);
    if (["unit", "network", "race"].includes(get("view"))) state.view = get("view");
    if (has("p")) state.unit.p = Math.max(parse(get("p")), 0.2) || 2;
    if (has("w")) {
      const w = get("w").split(",").map(Number);
      const filters = w.flatMap((x, i) => (i % 2 ? [] : [[x, w[i + 1]]])).slice(0, 4);
      if (filters.length && filters.flat().every(Number.isFinite)) state.unit.filters = filters;
    }
    if (has("c")) {
      const c = get("c").split(",").map(Number);
      if (c.length === 2 && c.every(Number.isFinite)) state.unit.center = c;
    }
    state.unit.gradient = (get("show") ?? "").includes("gradient");
    state.unit.dual = (get("show") ?? "").includes("dual");
    if (SETS[get("data")]) state.data.name = get("data");
    state.data.count = within(Math.round(get("points")), 10, MOST, SETS[state.data.name].count);
    state.data.seed = within(Math.round(get("draw")), 0, 2 ** 31, 0);
    if (get("data") === "own") {
      const xy = fromBase64(get("xy") ?? "", Float32Array);
      const rows = [...(get("class") ?? "")].slice(0, MOST).map((k, i) => [xy[2 * i], xy[2 * i + 1], +k]);
      if (rows.every((row) => row.every(Number.isFinite) && row[2] <= 2)) {
        state.data.name = "own";
        state.data.rows = rows;
      }
    }
    if (RATES[get("by")]) state.optimiser = get("by");
    state.rate = within(Number(get("rate") ?? NaN), 0, 100, RATES[state.optimiser]);
    state.orderRate = within(Number(get("orders") ?? NaN), 0, 1000, 5);
    state.seed = within(Math.round(get("seed")), 0, 2 ** 31, 1);
    if (["watch", "full"].includes(get("pace"))) state.pace = get("pace");
    state.nets.forEach((each, i) => {
      if (has(`net${i}`)) state.nets[i] = readNet(get(`net${i}`), each);
      if (!has(`theta${i}`)) return;
      const theta = fromBase64(get(`theta${i}`), Float64Array);
      const classes = [2, 3].find((k) => layout({ ...state.nets[i], classes: k }).size === theta.length);
      if (!classes || theta.some(Number.isNaN)) return;
      const steps = within(Math.round(get(`steps${i}`)), 0, 1e12, 0);
      const memory = has(`memory${i}`)
        ? unpackMemory(state.optimiser, [...fromBase64(get(`memory${i}`), Float64Array)])
        : null;
      const width = 3 + (KINDS[state.nets[i].kind].norm ? state.nets[i].units : 0);
      const flat = has(`history${i}`) ? [...fromBase64(get(`history${i}`), Float32Array)] : [];
      const history = [];
      for (let k = 0; k + width <= flat.length; k += width) history.push(flat.slice(k, k + width));
      state.runs[i] = { theta, steps, memory, history };
    });
    return state;
  }

  return { RATES, net, fresh, write, read };
});
