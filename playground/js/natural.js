"use strict";
// Natural conjugate gradient: lpunits.optim.NaturalConjugateGradient with its default arguments, line for line
// (the explanation is there). The Fisher matrix is dense: the networks of this page are small.
define("natural", ["unit"], (unit) => {
  const RESTART = 40;
  const EVALUATIONS = 30;

  const dot = (a, b) => {
    let sum = 0;
    for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
    return sum;
  };

  /** The Fisher matrix in the free parameters: the mean of J' H J over the points. */
  function fisher(network, set, free) {
    const size = free.length;
    const matrix = new Float64Array(size * size);
    const outputs = network.places.outputs;
    const jacobian = new Float64Array(network.theta.length);
    const pick = new Float64Array(outputs);
    const rows = Array.from({ length: outputs }, () => new Float64Array(size));
    const share = new Float64Array(outputs);
    network.prepare();
    for (let n = 0; n < set.y.length; n++) {
      const [x, y] = [set.x[2 * n], set.x[2 * n + 1]];
      const scores = network.score(x, y, true);
      for (let k = 0; k < outputs; k++) {
        pick.fill(0);
        pick[k] = 1;
        jacobian.fill(0);
        network.pullback(x, y, pick, jacobian);
        network.chain(jacobian);
        for (let i = 0; i < size; i++) rows[k][i] = jacobian[free[i]];
      }
      if (outputs === 1) {
        const slope = Math.sqrt(unit.sigmoid(scores[0]) * unit.sigmoid(-scores[0]));
        for (let i = 0; i < size; i++) rows[0][i] *= slope;
      } else {
        // The root of the softmax's curvature: sqrt(p_k) (v_k - sum_c p_c v_c).
        const top = Math.max(...scores);
        let sum = 0;
        for (let k = 0; k < outputs; k++) sum += share[k] = Math.exp(scores[k] - top);
        for (let i = 0; i < size; i++) {
          let mean = 0;
          for (let k = 0; k < outputs; k++) mean += (share[k] / sum) * rows[k][i];
          for (let k = 0; k < outputs; k++)
            rows[k][i] = Math.sqrt(share[k] / sum) * (rows[k][i] - mean);
        }
      }
      for (const row of rows)
        for (let i = 0; i < size; i++) {
          const value = row[i];
          if (value !== 0) for (let j = 0; j <= i; j++) matrix[i * size + j] += value * row[j];
        }
    }
    for (let i = 0; i < size; i++)
      for (let j = 0; j <= i; j++)
        matrix[j * size + i] = matrix[i * size + j] /= set.y.length;
    return matrix;
  }

  /** x with (F + damping I) x = b by Cholesky's factorisation; null where F is not positive. */
  function solve(matrix, damping, b) {
    const size = b.length;
    const L = new Float64Array(size * size);
    for (let i = 0; i < size; i++)
      for (let j = 0; j <= i; j++) {
        let sum = matrix[i * size + j] + (i === j ? damping : 0);
        for (let k = 0; k < j; k++) sum -= L[i * size + k] * L[j * size + k];
        if (i === j && !(sum > 0)) return null;
        L[i * size + j] = i === j ? Math.sqrt(sum) : sum / L[j * size + j];
      }
    const x = Float64Array.from(b);
    for (let i = 0; i < size; i++) {
      for (let k = 0; k < i; k++) x[i] -= L[i * size + k] * x[k];
      x[i] /= L[i * size + i];
    }
    for (let i = size - 1; i >= 0; i--) {
      for (let k = i + 1; k < size; k++) x[i] -= L[k * size + i] * x[k];
      x[i] /= L[i * size + i];
    }
    return x;
  }

  /** -P b for the pseudo-inverse P of a symmetric matrix of one or two rows. */
  function lowestOf(A, b) {
    const tiny = (value, top) => Math.abs(value) <= top * b.length * Number.EPSILON;
    if (b.length === 1) return [A[0][0] === 0 ? -0 : -b[0] / A[0][0]];
    const [[a, c], [, d]] = A;
    const angle = Math.atan2(2 * c, a - d) / 2;
    const vectors = [
      [Math.cos(angle), Math.sin(angle)],
      [-Math.sin(angle), Math.cos(angle)],
    ];
    const values = vectors.map(([x, y]) => a * x * x + 2 * c * x * y + d * y * y);
    const top = Math.max(...values.map(Math.abs));
    const x = [0, 0];
    vectors.forEach((v, k) => {
      if (tiny(values[k], top)) return;
      const share = (v[0] * b[0] + v[1] * b[1]) / values[k];
      x[0] -= share * v[0];
      x[1] -= share * v[1];
    });
    return x;
  }

  const byValue = (a, b) => a.value - b.value || compare(a.point, b.point);
  const compare = (a, b) => a[0] - b[0] || (a[1] ?? 0) - (b[1] ?? 0);

  /** Nelder and Mead's search from corners {value, point} whose values are known. */
  function nelderMead(f, corners, evaluations, tolerance) {
    let used = 0;
    const size = corners.length - 1;
    const evaluate = (point) => {
      used++;
      const value = f(point);
      return { value: Number.isNaN(value) ? Infinity : value, point };
    };
    corners.sort(byValue);
    const finite = corners.filter((corner) => corner.value < Infinity).map((corner) => corner.value);
    const enough = finite.length ? tolerance * (finite.at(-1) - finite[0]) : 0;
    while (used < evaluations && corners[size].value - corners[0].value >= enough) {
      const middle = corners[0].point.map(
        (_, d) => corners.slice(0, size).reduce((sum, corner) => sum + corner.point[d], 0) / size,
      );
      const last = corners[size];
      const along = (t) => evaluate(middle.map((m, d) => m + t * (m - last.point[d])));
      const lower = (a, b) => (byValue(b, a) < 0 ? b : a);
      let found = along(1);
      if (used < evaluations) {
        if (found.value < corners[0].value) found = lower(found, along(2));
        else if (found.value >= corners[size - 1].value)
          found = lower(found, along(found.value < last.value ? 0.5 : -0.5));
      }
      if (found.value < last.value) corners[size] = found;
      else {
        const best = corners[0].point;
        for (let k = 1; k <= size; k++)
          if (used < evaluations)
            corners[k] = evaluate(best.map((x, d) => (x + corners[k].point[d]) / 2));
      }
      corners.sort(byValue);
    }
    return corners[0];
  }

  class Natural {
    constructor() {
      this.memory = { damping: 1e-2, since: 0, direction: null };
    }

    forget() {
      Object.assign(this.memory, { since: 0, direction: null });
    }

    scaleDamping(factor) {
      this.memory.damping = Math.min(Math.max(this.memory.damping * factor, 1e-12), 1e12);
    }

    /** One step, from the loss and its gradient at the present parameters; true if it moved. */
    step(network, gradient, rates, set, before) {
      const free = Array.from(network.free.keys()).filter((i) => network.free[i]);
      const g = Float64Array.from(free, (i) => gradient[i]);
      if (!g.some((x) => x !== 0) || !g.every(Number.isFinite)) {
        this.forget();
        return false;
      }
      if (this.memory.since >= RESTART) this.forget();
      const F = fisher(network, set, free);
      let n = null;
      while (!(n = solve(F, this.memory.damping, g))) this.scaleDamping(4);
      n = n.map((x) => -x);
      const basis = this.memory.direction ? [n, this.memory.direction] : [n];

      const theta = Float64Array.from(free, (i) => network.theta[i]);
      const along = (point) =>
        theta.map((_, i) => basis.reduce((sum, v, d) => sum + point[d] * v[i], 0));
      const move = (to) => free.forEach((place, i) => (network.theta[place] = to[i]));
      const value = (point) => {
        const step = along(point);
        move(theta.map((x, i) => x + step[i]));
        return network.measure(set, null, null).loss;
      };
      const product = (v) => v.map((_, i) => dot(F.subarray(i * v.length, (i + 1) * v.length), v));
      const slope = basis.map((v) => dot(v, g));
      const images = basis.map(product);
      const bend = basis.map((v) => images.map((image) => dot(v, image)));
      const { best, ratio } = search(value, before, slope, bend);

      if (!(best.value < before)) {
        move(theta);
        this.scaleDamping(4);
        this.forget();
        return false;
      }
      this.scaleDamping(!(ratio >= 0.25) ? 1.5 : ratio > 0.75 ? 2 / 3 : 1);
      const step = along(best.point);
      move(theta.map((x, i) => x + step[i]));
      this.memory.since++;
      if (dot(g, step) < 0) this.memory.direction = step;
      else this.forget();
      return true;
    }
  }

  /** The best point of the plane, and how much of the promised decrease the natural gradient reached. */
  function search(value, before, slope, bend) {
    const at = (point) => ({ value: value(point), point });
    const first = at(slope.length === 1 ? [1] : [1, 0]);
    const ratio = (before - first.value) / -(slope[0] + bend[0][0] / 2);
    const scale = bend.map((row, i) => 1 / Math.sqrt(row[i]));
    const scaled = bend.map((row, i) =>
      row.map((x, j) => (Number.isNaN(scale[j] * x * scale[i]) ? 0 : scale[j] * x * scale[i])),
    );
    const lowest = lowestOf(scaled, slope.map((s, i) => scale[i] * s)).map((x, i) => x * scale[i]);
    let corners = [first];
    if (lowest.every(Number.isFinite)) corners.push(at(lowest));
    const rank = ({ value: v }) => (Number.isNaN(v) ? Infinity : v);
    corners.sort((a, b) => (rank(a) === rank(b) ? 0 : rank(a) - rank(b)));
    let left = EVALUATIONS - corners.length;
    const origin = { value: before, point: slope.map(() => 0) };
    const best = corners[0];
    if (slope.length === 1) corners = [best, origin];
    else if (corners.length < 2 || Math.abs(lowest[1]) < 0.1) {
      corners = [best, origin, at([best.point[0], best.point[1] + 0.5])];
      left--;
    } else corners.push(origin);
    for (const corner of corners) if (Number.isNaN(corner.value)) corner.value = Infinity;
    return { best: nelderMead(value, corners, left, 0.01), ratio };
  }

  return { Natural, fisher };
});
