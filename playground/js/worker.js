"use strict";
// Training, off the page's thread. Messages in: start, play, pause, step, tune; messages out: snapshots.
define("worker", ["trainer"], ({ Trainer }) => {
  const SLICE = 12; // milliseconds of work before messages are looked at
  const FRAME = 15; // milliseconds between snapshots, a little less than a frame of the page
  let trainer = null;
  let run = 0;
  let playing = false;
  let pace = Infinity; // steps a second
  let clean = false; // no mistake is left: playing has stopped for it once
  let due = 0;
  let shown = 0;
  let speed = 0;
  let counted = { steps: 0, since: 0 };

  // A message to itself lets others in between; a timer would wait for 4 ms.
  const again = new MessageChannel();
  again.port1.onmessage = () => playing && work();
  const soon = () => again.port2.postMessage(0);

  function snapshot(ended = null) {
    const { loss, mistakes } = trainer.measure();
    const { theta, steps, memory } = trainer.save();
    shown = performance.now();
    const orders = trainer.network.orders();
    postMessage({ run, theta, steps, memory, loss, mistakes, orders, wrong: trainer.wrong, ended, speed });
  }

  function count() {
    counted.steps++;
    const time = performance.now() - counted.since;
    if (time < 500) return;
    speed = (1000 * counted.steps) / time;
    counted = { steps: 0, since: performance.now() };
  }

  function work() {
    const begin = performance.now();
    if (begin < due) {
      setTimeout(soon, due - begin);
      return;
    }
    do {
      const down = trainer.step();
      count();
      due = Math.max(due + 1000 / pace, begin - 100);
      const { mistakes } = pace < 100 || performance.now() - shown > FRAME ? trainer.measure() : {};
      const reached = mistakes === 0 && !clean;
      if (reached) clean = true;
      if (reached || !down) {
        playing = false;
        snapshot(reached ? "clean" : Number.isFinite(trainer.measure().loss) ? "stalled" : "diverged");
        return;
      }
      if (performance.now() - shown > FRAME) snapshot();
    } while (performance.now() - begin < SLICE && performance.now() >= due);
    soon();
  }

  const handlers = {
    start({ task, set, from, number }) {
      run = number;
      playing = false;
      trainer = new Trainer(task, set, from);
      speed = 0;
      clean = trainer.measure().mistakes === 0;
      snapshot();
    },
    play(message) {
      pace = message.pace;
      if (playing) return;
      playing = true;
      due = 0;
      counted = { steps: 0, since: performance.now() };
      work();
    },
    pause() {
      if (playing) {
        playing = false;
        snapshot();
      }
    },
    step() {
      playing = false;
      const down = trainer.step();
      clean ||= trainer.measure().mistakes === 0;
      snapshot(down ? null : "stalled");
    },
    tune({ task }) {
      trainer.tune(task);
    },
  };
  self.onmessage = ({ data }) => handlers[data.type](data);
});
