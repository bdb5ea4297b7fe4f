// pg-boss: batches of 1,000, the next at once while they come full.
import { PgBoss } from 'pg-boss';
import { DSN, serve } from './driver.mjs';

const QUEUE = 'q';

async function opened() {
  const boss = new PgBoss({ connectionString: DSN, max: 10, schedule: false });
  boss.on('error', (error) => console.error(error.message));
  await boss.start();
  return boss;
}

let sender;

await serve({
  async setup() {
    await (await opened()).createQueue(QUEUE);
  },
  async fill(inputs) {
    sender ??= await opened();
    await sender.insert(QUEUE, inputs.map((data) => ({ data })));
  },
  async work(recorder) {
    const options = {
      batchSize: 1000,
      localConcurrency: 1,
      pollingIntervalSeconds: 0.5,
      burstWhenBatchFull: true,
    };
    await (await opened()).work(QUEUE, options, async (jobs) => {
      for (const job of jobs) recorder.hit(job.data.i);
    });
  },
});
