// Driver: what the contestants on Node share. The verbs and the files are those of driver.py.
import { renameSync, writeFileSync } from 'node:fs';

export const DSN = process.env.BENCH_DSN;
export const PAYLOAD = {
  kind: 1,
  message: 'somebody has to look at this, and it had better be soon',
};

/** Counts every handler call, and writes the count where run.py looks for it. */
export class Recorder {
  constructor() {
    this.jobs = Number(process.env.BENCH_JOBS ?? 100000);
    this.seen = new Uint8Array(this.jobs);
    this.count = 0;
    this.first = 0;
    this.written = -1;
    this.told = -1;
    setInterval(() => this.write(process.env.BENCH_OUT), 20);
  }

  hit(job) {
    if (this.count === 0) this.first = Date.now() / 1000;
    this.count += 1;
    this.seen[job] += 1;
  }

  write(path) {
    const note = { count: this.count, first: this.first };
    if (this.count === this.written) {
      if (this.told === this.count) return;
      // The exact sum waits for a moment of rest: it would take time from the handlers.
      note.distinct = this.seen.filter((times) => times > 0).length;
      this.told = this.count;
    }
    writeFileSync(`${path}.draft`, JSON.stringify(note));
    renameSync(`${path}.draft`, path);
    this.written = this.count;
  }
}

/** Do what the command line says, with setup(), fill(jobs) and work(recorder). */
export async function serve({ setup, fill, work }) {
  const [verb, jobs] = process.argv.slice(2);
  if (verb === 'setup') await setup();
  else if (verb === 'fill') {
    for (let start = 0; start < Number(jobs); start += 1000) {
      const many = Math.min(1000, Number(jobs) - start);
      await fill(Array.from({ length: many }, (_, n) => ({ i: start + n, p: PAYLOAD })));
    }
  } else if (verb === 'work') return work(new Recorder());
  else throw new Error(`${verb}: no such verb`);
  process.exit(0);
}
