"use strict";
// The Lp unit: its value and its derivatives, stable for every input and every order.
//
// With m = max |z_i|, r_i = |z_i| / m and s = sum r_i^p the unit is u = m (s / N)^(1/p), and
//   du/dz_i = sign(z_i) (u / m) r_i^(p-1) / s,   du/dp = u / p^2 sum_i w_i ln(N w_i),  w_i = r_i^p / s.
define("unit", [], () => {
  // Logarithm and exponential by tables of 128 entries: three times as fast as Math.log and Math.exp,
  // which take most of the time of training, and right to the last digits (tested).
  const bits = new Float64Array(1);
  const half = new Uint32Array(bits.buffer); // the upper half is half[1] on every machine in use
  const INVERSE = Float64Array.from({ length: 129 }, (_, i) => 1 / (1 + i / 128));
  const LOG = Float64Array.from({ length: 129 }, (_, i) => Math.log1p(i / 128));
  const EXP = Float64Array.from({ length: 128 }, (_, i) => Math.pow(2, i / 128));
  const LOWER = Float64Array.from({ length: 1076 }, (_, i) => Math.pow(2, -i));
  const RAISE = Float64Array.from({ length: 1023 }, (_, i) => Math.pow(2, i));
  const STEP_HIGH = 0.005415212130174041; // ln(2) / 128 in two parts; an integer times the first is exact
  const STEP_LOW = 2.1795053193544957e-10;

  /** ln x for a normal number 0 < x <= 1. */
  function log(x) {
    bits[0] = x;
    const high = half[1];
    const down = 1023 - (high >>> 20); // x = 2^-down (1 + k / 128 + a rest)
    const k = ((high & 0xfffff) + 0x1000) >>> 13;
    const t = (x * RAISE[down] - (1 + k * 0.0078125)) * INVERSE[k];
    const t2 = t * t;
    const series = t2 * (-0.5 + t * (1 / 3) + t2 * (-0.25 + t * 0.2 + t2 * (-1 / 6 + t * (1 / 7))));
    return LOG[k] - down * Math.LN2 + (t + series);
  }

  /** e^x for x <= 0. */
  function exp(x) {
    if (!(x > -745)) return Number.isNaN(x) ? NaN : 0;
    const n = (x * 184.6649652337873 - 0.5) | 0; // the nearest multiple of ln(2) / 128
    const t = x - n * STEP_HIGH - n * STEP_LOW;
    const series = t + t * t * (0.5 + t * (1 / 6 + t * (1 / 24 + t * (1 / 120))));
    const scale = EXP[n & 127];
    return (scale + scale * series) * LOWER[-(n >> 7)];
  }

  const softplus = (rho) => (rho > 40 ? rho : Math.log1p(Math.exp(rho)));
  const sigmoid = (x) => (x >= 0 ? 1 / (1 + Math.exp(-x)) : 1 - 1 / (1 + Math.exp(x)));

  /** p = 1 + log(1 + e^rho): an order that is learned stays above 1. */
  const orderOf = (rho) => 1 + softplus(rho);
  const orderSlope = sigmoid;

  /** The rho of an order from 1 to infinity; at 1, where it is -inf, as far down as it matters. */
  function rhoOf(p) {
    if (p === Infinity) return Infinity;
    const excess = Math.max(p - 1, Number.EPSILON / 4);
    return excess + Math.log(-Math.expm1(-excess));
  }

  /**
   * The value of one group z[at .. at + n], at an order p > 0. If `slopes` is given, du/dz goes to
   * slopes[at ..] and du/dp to slopes[last]. A group of zeros gives 0, and slopes of 0.
   */
  function pool(z, at, n, p, slopes, last) {
    if (n === 2) {
      const [a, b] = [Math.abs(z[at]), Math.abs(z[at + 1])];
      const r = a < b ? a / b : b / a;
      if (r > 1e-300 && r < 1 && p < Infinity) return pair(z, at, p, slopes, last, a < b ? at : at + 1, r);
    }
    let m = 0;
    for (let i = at; i < at + n; i++) m = Math.max(m, Math.abs(z[i]));
    if (m === 0) {
      if (slopes) {
        slopes.fill(0, at, at + n);
        slopes[last] = 0;
      }
      return 0;
    }
    if (p === Infinity) {
      if (slopes) {
        let ties = 0;
        for (let i = at; i < at + n; i++) ties += Math.abs(z[i]) === m;
        for (let i = at; i < at + n; i++)
          slopes[i] = Math.abs(z[i]) === m ? Math.sign(z[i]) / ties : 0;
        slopes[last] = 0;
      }
      return m;
    }
    let s = 0;
    let sx = 0;
    for (let i = at; i < at + n; i++) {
      const a = Math.abs(z[i]);
      const r = a / m;
      let power = 1; // r^p
      let slope = 1; // r^(p - 1)
      if (a !== m) {
        if (r > 1e-300) {
          const x = p * log(r);
          power = exp(x);
          slope = power / r;
          sx += power * x;
        } else {
          power = 0;
          slope = a === 0 ? 0 : Math.exp((p - 1) * (Math.log(a) - Math.log(m)));
        }
      }
      s += power;
      if (slopes) slopes[i] = z[i] < 0 ? -slope : z[i] > 0 ? slope : 0;
    }
    const level = s < n ? log(s / n) : 0;
    const k = exp(p === 1 ? level : level / p);
    if (slopes) {
      for (let i = at; i < at + n; i++) slopes[i] *= k / s;
      slopes[last] = ((m * k) / (p * p)) * (sx / s - level);
    }
    return m * k;
  }

  /** The same for two numbers of which none is 0: the case that counts for speed. */
  function pair(z, at, p, slopes, last, small, r) {
    const large = 2 * at + 1 - small;
    const x = p * log(r);
    const power = exp(x);
    const s = 1 + power;
    const level = log(s / 2);
    const k = exp(level / p);
    const m = Math.abs(z[large]);
    if (slopes) {
      const slope = k / s;
      slopes[large] = z[large] < 0 ? -slope : slope;
      slopes[small] = ((z[small] < 0 ? -slope : slope) * power) / r;
      slopes[last] = ((m * k) / (p * p)) * ((power * x) / s - level);
    }
    return m * k;
  }

  /** The order of the dual norm: 1/p + 1/q = 1. Below 1 there is none. */
  const dual = (p) => (p < 1 ? NaN : p === 1 ? Infinity : p === Infinity ? 1 : p / (p - 1));

  return { log, exp, sigmoid, orderOf, orderSlope, rhoOf, pool, dual };
});
