"use strict";
// numpy's PCG64, word for word, so that the data sets of the paper are the same points here and in
// Python, and a seed means the same run in every browser.
define("random", [], () => {
  const MASK64 = (1n << 64n) - 1n;
  const MASK128 = (1n << 128n) - 1n;
  const MULTIPLIER = 0x2360ed051fc65da44385df649fccf645n;

  /** numpy's SeedSequence: eight 32-bit words from a seed and the numbers of a stream. */
  function seedWords(seed, stream) {
    const entropy = [seed >>> 0];
    if (seed > 0xffffffff) entropy.push(Math.floor(seed / 2 ** 32) >>> 0);
    if (stream.length) while (entropy.length < 4) entropy.push(0);
    entropy.push(...stream);
    let hash = 0x43b0d7e5;
    const mixin = (value) => {
      value = (value ^ hash) >>> 0;
      hash = Math.imul(hash, 0x931e8875) >>> 0;
      value = Math.imul(value, hash) >>> 0;
      return (value ^ (value >>> 16)) >>> 0;
    };
    const mix = (x, y) => {
      const z = (Math.imul(0xca01f9dd, x) - Math.imul(0x4973f715, y)) >>> 0;
      return (z ^ (z >>> 16)) >>> 0;
    };
    const pool = [0, 1, 2, 3].map((i) => mixin(i < entropy.length ? entropy[i] : 0));
    for (let from = 0; from < 4; from++)
      for (let to = 0; to < 4; to++) if (from !== to) pool[to] = mix(pool[to], mixin(pool[from]));
    for (const word of entropy.slice(4))
      for (let to = 0; to < 4; to++) pool[to] = mix(pool[to], mixin(word));
    hash = 0x8b51f9dd;
    return Array.from({ length: 8 }, (_, i) => {
      let value = (pool[i % 4] ^ hash) >>> 0;
      hash = Math.imul(hash, 0x58f38ded) >>> 0;
      value = Math.imul(value, hash) >>> 0;
      return (value ^ (value >>> 16)) >>> 0;
    });
  }

  /** Independent random numbers for each seed and stream. */
  class Random {
    constructor(seed, ...stream) {
      const w = seedWords(seed, stream).map(BigInt);
      const [a, b, c, d] = [0, 2, 4, 6].map((i) => (w[i + 1] << 32n) | w[i]);
      this.increment = ((((c << 64n) | d) << 1n) | 1n) & MASK128;
      this.state = 0n;
      this.advance();
      this.state = (this.state + ((a << 64n) | b)) & MASK128;
      this.advance();
    }

    advance() {
      this.state = (this.state * MULTIPLIER + this.increment) & MASK128;
    }

    /** 64 random bits. */
    word() {
      this.advance();
      const high = this.state >> 64n;
      const value = high ^ (this.state & MASK64);
      const turn = high >> 58n;
      return ((value >> turn) | (value << (64n - turn))) & MASK64;
    }

    /** Uniform in [0, 1). */
    uniform() {
      return Number(this.word() >> 11n) * 2 ** -53;
    }

    /** Uniform in [low, high). */
    between(low, high) {
      return low + (high - low) * this.uniform();
    }

    /** Standard normal, of two words, by Box and Muller. */
    normal() {
      const radius = Math.sqrt(-2 * Math.log(1 - this.uniform()));
      return radius * Math.cos(2 * Math.PI * this.uniform());
    }
  }

  return { Random };
});
