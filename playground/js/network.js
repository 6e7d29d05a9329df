"use strict";
// A network with two inputs, one hidden layer and linear class scores, in double precision. Its parameters are
// one flat vector in the order of lpunits.MLP: [rho], weight, center or bias, then the weight and bias of the output.
define("network", ["unit", "random"], (unit, { Random }) => {
  const KINDS = {
    __proto__: null,
    lp: { label: "Lp", pools: true, norm: true },
    l2: { label: "L2", pools: true, norm: true },
    maxout: { label: "Maxout", pools: true },
    relu: { label: "ReLU", pools: false },
    sigmoid: { label: "Sigmoid", pools: false },
  };

  /** Where each parameter lies in the flat vector, and how many there are. */
  function layout({ kind, units, filters, classes }) {
    const outputs = classes === 2 ? 1 : classes;
    const places = { outputs, rho: 0 };
    let at = KINDS[kind].norm ? units : 0;
    places.weight = at; // filter i of unit j: two numbers at weight + 2 (i units + j)
    at += 2 * filters * units;
    places.shift = at; // centres (subtracted) or biases (added): shift + i units + j
    at += filters * units;
    places.out = at; // class k of unit j: out + k units + j
    at += outputs * units;
    places.bias = at;
    places.size = at + outputs;
    return places;
  }

  class Network {
    /** The shape: {kind, units, filters, classes, orders, learned}; orders and learned are one for each unit. */
    constructor(shape, theta) {
      this.shape = shape;
      this.places = layout(shape);
      this.theta = theta ?? new Float64Array(this.places.size);
      const { units, filters } = shape;
      this.z = new Float64Array(units * filters);
      this.h = new Float64Array(units);
      this.slopes = new Float64Array(units * filters + units); // dh/dz, then dh/dp of each unit
      this.p = new Float64Array(units);
      this.scores = new Float64Array(this.places.outputs);
      this.errors = new Float64Array(this.places.outputs); // dloss/dscores
      /** 1 for each parameter that learns: all but the orders that are fixed. */
      this.free = new Uint8Array(this.places.size).fill(1);
      if (KINDS[shape.kind].norm)
        for (let j = 0; j < units; j++) {
          const fixed = shape.kind === "l2" || !shape.learned[j] || shape.orders[j] === Infinity;
          this.free[j] = fixed ? 0 : 1;
        }
    }

    /** The orders of the units; empty where there are none. */
    orders() {
      if (!KINDS[this.shape.kind].norm) return [];
      return Array.from(this.theta.subarray(0, this.shape.units), unit.orderOf);
    }

    /** Call it after the parameters have changed: orders are computed once for all points. */
    prepare() {
      if (KINDS[this.shape.kind].norm)
        for (let j = 0; j < this.shape.units; j++) this.p[j] = unit.orderOf(this.theta[j]);
    }

    /** The hidden units at a point; with `derive` also their slopes in the projections and orders. */
    hidden(x, y, derive) {
      const { theta, z, h, slopes, places } = this;
      const { kind, units, filters } = this.shape;
      const sign = KINDS[kind].norm ? -1 : 1;
      for (let j = 0; j < units; j++) {
        const from = j * filters;
        for (let i = 0; i < filters; i++) {
          const w = places.weight + 2 * (i * units + j);
          z[from + i] = theta[w] * x + theta[w + 1] * y + sign * theta[places.shift + i * units + j];
        }
        if (kind === "lp" || kind === "l2") {
          h[j] = unit.pool(z, from, filters, this.p[j], derive ? slopes : null, units * filters + j);
        } else if (kind === "maxout") {
          let top = -Infinity;
          let ties = 0;
          for (let i = from; i < from + filters; i++)
            if (z[i] > top) [top, ties] = [z[i], 1];
            else if (z[i] === top) ties++;
          h[j] = top;
          if (derive)
            for (let i = from; i < from + filters; i++) slopes[i] = z[i] === top ? 1 / ties : 0;
        } else if (kind === "relu") {
          h[j] = Math.max(z[from], 0);
          slopes[from] = z[from] > 0 ? 1 : 0;
        } else {
          h[j] = unit.sigmoid(z[from]);
          slopes[from] = h[j] * unit.sigmoid(-z[from]);
        }
      }
    }

    /** The class scores at a point; one score is the log-odds of class 1. */
    score(x, y, derive = false) {
      this.hidden(x, y, derive);
      const { theta, h, scores, places } = this;
      const units = this.shape.units;
      for (let k = 0; k < places.outputs; k++) {
        let sum = theta[places.bias + k];
        for (let j = 0; j < units; j++) sum += theta[places.out + k * units + j] * h[j];
        scores[k] = sum;
      }
      return scores;
    }

    /** Add to `out` what the slopes at the present point, times `errors` in the scores, give. */
    pullback(x, y, errors, out) {
      const { theta, h, slopes, places } = this;
      const { kind, units, filters } = this.shape;
      const norm = KINDS[kind].norm;
      for (let k = 0; k < places.outputs; k++) {
        const e = errors[k];
        for (let j = 0; j < units; j++) out[places.out + k * units + j] += e * h[j];
        out[places.bias + k] += e;
      }
      for (let j = 0; j < units; j++) {
        let e = 0;
        for (let k = 0; k < places.outputs; k++) e += errors[k] * theta[places.out + k * units + j];
        for (let i = 0; i < filters; i++) {
          const d = e * slopes[j * filters + i];
          const at = i * units + j;
          out[places.weight + 2 * at] += d * x;
          out[places.weight + 2 * at + 1] += d * y;
          out[places.shift + at] += norm ? -d : d;
        }
        if (norm) out[j] += e * slopes[units * filters + j]; // in p; `chain` makes it one in rho
      }
    }

    /** Gradients in the orders become gradients in rho; those of fixed orders become 0. */
    chain(gradient) {
      if (KINDS[this.shape.kind].norm)
        for (let j = 0; j < this.shape.units; j++)
          gradient[j] = this.free[j] ? gradient[j] * unit.orderSlope(this.theta[j]) : 0;
      return gradient;
    }

    /**
     * The mean loss over a set of points (logistic for two classes, softmax for three), and the mistakes.
     * If given, `gradient` is overwritten, and `wrong` gets a 1 for every point that is a mistake.
     */
    measure(set, gradient, wrong) {
      this.prepare();
      gradient?.fill(0);
      const { scores, errors } = this;
      const n = set.y.length;
      let loss = 0;
      let mistakes = 0;
      for (let i = 0; i < n; i++) {
        const [x, y, target] = [set.x[2 * i], set.x[2 * i + 1], set.y[i]];
        this.score(x, y, gradient !== null);
        let miss;
        if (scores.length === 1) {
          const s = scores[0];
          const e = Math.exp(-Math.abs(s));
          loss += Math.max(s, 0) - target * s + Math.log1p(e);
          errors[0] = (s >= 0 ? 1 / (1 + e) : e / (1 + e)) - target;
          miss = (s > 0 ? 1 : 0) !== target;
        } else {
          let top = 0;
          for (let k = 1; k < scores.length; k++) if (scores[k] > scores[top]) top = k;
          let sum = 0;
          for (let k = 0; k < scores.length; k++) sum += errors[k] = Math.exp(scores[k] - scores[top]);
          loss += Math.log(sum) + scores[top] - scores[target];
          for (let k = 0; k < scores.length; k++) errors[k] /= sum;
          errors[target] -= 1;
          miss = top !== target;
        }
        if (miss) mistakes++;
        if (wrong) wrong[i] = miss ? 1 : 0;
        if (gradient) this.pullback(x, y, errors, gradient);
      }
      if (gradient) {
        for (let i = 0; i < gradient.length; i++) gradient[i] /= n;
        this.chain(gradient);
      }
      return { loss: loss / n, mistakes };
    }

    /** Draw the parameters of a start, as lpunits.MLP does by default (lpunits/start.py). */
    start(seed) {
      const { kind, units, filters, orders } = this.shape;
      const { theta, places } = this;
      const random = new Random(seed, 2);
      const pools = KINDS[kind].pools;
      const bound = pools ? Math.sqrt(3 / 2) : Math.sqrt(1 / 2);
      for (let i = places.weight; i < places.shift; i++) theta[i] = random.between(-bound, bound);
      for (let i = places.shift; i < places.out; i++)
        theta[i] = pools ? random.normal() : random.between(-bound, bound);
      const reach = 1 / Math.sqrt(units);
      for (let i = places.out; i < places.size; i++) theta[i] = random.between(-reach, reach);
      if (pools) {
        for (let i = places.out; i < places.bias; i++) theta[i] /= 3; // units have a large common mean
        for (let j = 0; j < units; j++) {
          const p = kind === "l2" ? 2 : KINDS[kind].norm ? orders[j] : 0;
          if (p) theta[j] = unit.rhoOf(p);
          const scale = deviation(p, filters);
          for (let i = 0; i < filters; i++) {
            theta[places.weight + 2 * (i * units + j)] /= scale;
            theta[places.weight + 2 * (i * units + j) + 1] /= scale;
            theta[places.shift + i * units + j] /= scale;
          }
        }
      }
      return this;
    }
  }

  /** The standard deviation of a unit on normal projections around normal centres; p = 0 stands for maxout. */
  function deviation(p, filters) {
    const random = new Random(0, 3);
    const z = new Float64Array(filters);
    let sum = 0;
    for (let c = 0; c < 128; c++) {
      const centers = Array.from({ length: filters }, () => random.normal());
      const values = [0, 1, 2, 3].map(() => {
        for (let i = 0; i < filters; i++) z[i] = random.normal() - centers[i];
        return p ? unit.pool(z, 0, filters, p, null, 0) : Math.max(...z);
      });
      const mean = values.reduce((a, b) => a + b) / 4;
      sum += values.reduce((a, b) => a + (b - mean) ** 2, 0) / 3;
    }
    return Math.sqrt(sum / 128);
  }

  return { KINDS, layout, Network };
});
