// graphile-worker: 24 jobs at a time, a local queue of 500, completions in batches.
import { Logger, makeWorkerUtils, run, runMigrations } from 'graphile-worker';
import { DSN, serve } from './driver.mjs';

const CONCURRENCY = 24;
const logger = new Logger(() => (level, message) => {
  if (level === 'error') console.error(message);
});

let sender;

await serve({
  async setup() {
    await runMigrations({ connectionString: DSN, logger });
  },
  async fill(inputs) {
    sender ??= await makeWorkerUtils({ connectionString: DSN, logger, maxPoolSize: 10 });
    await sender.addJobs(inputs.map((payload) => ({ identifier: 'noop', payload })));
  },
  async work(recorder) {
    const worker = {
      connectionString: DSN,
      concurrentJobs: CONCURRENCY,
      maxPoolSize: CONCURRENCY + 2,
      pollInterval: 2000,
      localQueue: { size: 500 },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
      logger,
    };
    const runner = await run({
      preset: { worker },
      taskList: { noop: async (payload) => recorder.hit(payload.i) },
    });
    await runner.promise;
  },
});
