"use strict";
// First-order optimisers with torch's formulas. Orders learn at a rate of their own: at that of the weights
// they hardly move. What an optimiser keeps between steps is `memory`, a list of vectors and numbers.
define("optimisers", [], () => {
  /** v <- 0.9 v + g, then theta <- theta - rate v. */
  class Momentum {
    constructor(size) {
      this.memory = { velocity: new Float64Array(size) };
    }

    step(network, gradient, rates) {
      const { velocity } = this.memory;
      for (let i = 0; i < gradient.length; i++) {
        if (!network.free[i]) continue;
        velocity[i] = 0.9 * velocity[i] + gradient[i];
        network.theta[i] -= rates[i] * velocity[i];
      }
    }
  }

  class Adam {
    constructor(size) {
      this.memory = { mean: new Float64Array(size), square: new Float64Array(size), steps: 0 };
    }

    step(network, gradient, rates) {
      const { mean, square } = this.memory;
      const t = ++this.memory.steps;
      for (let i = 0; i < gradient.length; i++) {
        if (!network.free[i]) continue;
        const g = gradient[i];
        mean[i] = 0.9 * mean[i] + 0.1 * g;
        square[i] = 0.999 * square[i] + 0.001 * g * g;
        const size = Math.sqrt(square[i] / (1 - 0.999 ** t)) + 1e-8;
        network.theta[i] -= (rates[i] * mean[i]) / (1 - 0.9 ** t) / size;
      }
    }
  }

  return { Momentum, Adam };
});
