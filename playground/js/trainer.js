"use strict";
// A run: a network, its data and its optimiser. The worker drives it; so do the tests.
define("trainer", ["network", "optimisers", "natural"], ({ Network, KINDS }, { Momentum, Adam }, { Natural }) => {
  const OPTIMISERS = { natural: Natural, adam: Adam, sgd: Momentum };
  const PATIENCE = 20; // a natural gradient run has stalled when over so many steps ...
  const PROGRESS = 1e-3; // ... the loss fell by less than this part of itself

  class Trainer {
    /**
     * Of a task {shape, optimiser, rate, orderRate, seed} and a set of points. `from` is what `save` gave: the run
     * then continues as if it had never stopped.
     */
    constructor(task, set, from = null) {
      this.set = set;
      this.network = new Network(task.shape);
      this.gradient = new Float64Array(this.network.theta.length);
      this.wrong = new Uint8Array(set.y.length);
      this.rates = new Float64Array(this.network.theta.length);
      this.optimiser = new OPTIMISERS[task.optimiser](this.network.theta.length);
      this.natural = task.optimiser === "natural";
      this.steps = from?.steps ?? 0;
      this.losses = []; // the last ones, for the stall
      if (from) this.network.theta.set(from.theta);
      else this.network.start(task.seed);
      if (from?.memory) this.optimiser.memory = from.memory;
      this.tune(task);
      this.measured = null;
    }

    /** Other rates; `orderRate` multiplies the rate for the orders. */
    tune({ rate, orderRate }) {
      this.rates.fill(rate);
      if (KINDS[this.network.shape.kind].norm)
        this.rates.fill(rate * orderRate, 0, this.network.shape.units);
    }

    /** Loss, mistakes and gradient at the present parameters, which the next step then need not compute. */
    measure() {
      this.measured ??= this.network.measure(this.set, this.gradient, this.wrong);
      return this.measured;
    }

    /** One full-batch step; false if there is no way down any more. */
    step() {
      const { loss } = this.measure();
      this.measured = null;
      const { optimiser, network, gradient, rates, set } = this;
      const moved = optimiser.step(network, gradient, rates, set, loss);
      this.steps++;
      if (!this.natural) return Number.isFinite(loss);
      this.losses.push(loss);
      if (this.losses.length > PATIENCE + 1) this.losses.shift();
      const stalled = this.losses.length > PATIENCE && loss > (1 - PROGRESS) * this.losses[0];
      return Number.isFinite(loss) && !stalled && (moved || optimiser.memory.damping < 1e12);
    }

    /** What the run can continue from. */
    save() {
      return { theta: this.network.theta.slice(), steps: this.steps, memory: this.optimiser.memory };
    }
  }

  return { Trainer };
});
